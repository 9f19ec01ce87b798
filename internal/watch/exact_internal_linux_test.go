package watch

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestAttackLockedProcessesDoNotBlindTheWatch: a program can hold the lock under which the kernel
// adds up the memory of a process. Such a process counts with all of its resident memory, and the
// sum is there soon.
func TestAttackLockedProcessesDoNotBlindTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const locked, honest, resident, pss = 20, 3, 8 << 20, 1 << 20
		var e exact
		free := make(chan struct{})
		var all []string
		for i := range locked + honest {
			all = append(all, strconv.Itoa(i))
		}
		open := func(p string) (func() int64, func() (int64, bool)) {
			return func() int64 { return resident }, func() (int64, bool) {
				if i, _ := strconv.Atoi(p); i < locked {
					<-free
				}
				return sizeOf("", fmt.Sprintf("a header\nRss: 9 kB\nPss: %d kB\n", pss>>10), "")
			}
		}
		check := func(when string, want int64, within time.Duration) {
			t.Helper()
			began := time.Now()
			if got, sure := e.sum(all, math.MaxInt64, open); got != want || sure != (when == "free again") {
				t.Errorf("%s: got a sum of %d bytes, sure %v, want %d", when, got, sure, want)
			}
			if took := time.Since(began); took > within {
				t.Errorf("%s: the sum took %v, want at most %v", when, took, within)
			}
		}
		check("locked", locked*resident+honest*pss, 400*time.Millisecond)
		check("locked still", locked*resident+honest*pss, 0)
		close(free)
		e.reads.Wait()
		check("free again", (locked+honest)*pss, 0)
	})
}

// TestAttackOneLockedProcessDoesNotHideOthers: exact sizes that alone are above the limit are sure, whatever else does not answer.
// Otherwise the watch would wait for that one, and the others would keep their memory meanwhile.
func TestAttackOneLockedProcessDoesNotHideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, pss = 100 << 20, 60 << 20
		var e exact
		free := make(chan struct{})
		open := func(p string) (func() int64, func() (int64, bool)) {
			return func() int64 { return 1 << 20 }, func() (int64, bool) {
				if p == "locked" {
					<-free
				}
				return pss, true
			}
		}
		if got, sure := e.sum([]string{"locked", "1", "2", "3"}, limit, open); got != 2*pss || !sure {
			t.Errorf("got %d bytes, sure %v, want the %d of those that have answered, and sure", got, sure, 2*pss)
		}
		if got, sure := e.sum([]string{"locked", "1"}, limit, open); got != pss+1<<20 || sure {
			t.Errorf("got %d bytes, sure %v, want %d, which is not sure", got, sure, pss+1<<20)
		}
		close(free)
		e.reads.Wait()
	})
}

// TestAttackArgumentsOfAWaitingExecveCount: the kernel keeps them in pages that no mapping shows. What a process has
// freed or left behind meanwhile does not count as such pages.
func TestAttackArgumentsOfAWaitingExecveCount(t *testing.T) {
	status := func(kb int) string {
		return fmt.Sprintf("Name:\tp\nVmRSS:\t  9 kB\nRssAnon:\t  %d kB\nRssFile:\t 1 kB\n", kb)
	}
	const rollup = "a header\nRss: 5000 kB\nPss: 1024 kB\nPss_Dirty: 1 kB\nAnonymous: 4096 kB\n" // shared with its forks
	slack := int(inexact() >> 10)
	for _, c := range []struct {
		what          string
		before, after int
		want          int64 // kilobytes
	}{
		{"ordinary", 4096, 4096, 1024},
		{"waits in execve", 4096 + 6144 + slack, 4096 + 6144 + slack, 1024 + 6144},
		{"has executed a program", 60 << 10, 4096, 1024},
		{"has taken memory", 4096, 60 << 10, 1024},
		{"has swapped some out", 4000, 4000, 1024},
	} {
		if got, ok := sizeOf(status(c.before), rollup, status(c.after)); got != c.want<<10 || !ok {
			t.Errorf("a process that %s: got %d bytes, %v, want %d", c.what, got, ok, c.want<<10)
		}
	}
	if got, ok := sizeOf(status(4096), "", status(4096)); got != 0 || ok {
		t.Errorf("no rollup: got %d bytes, %v, want none", got, ok)
	}
}

// TestPagesOfFilesAreNoMemoryOfAProcess: those on disks are the host's, and those in memory count as files.
func TestPagesOfFilesAreNoMemoryOfAProcess(t *testing.T) {
	const rollup = "a header\nRss: 5000 kB\nPss: 1024 kB\nPss_Anon: 24 kB\nPss_File: 600 kB\nPss_Shmem: 400 kB\n"
	for plain, want := range map[bool]int64{false: 1000 << 10, true: 600 << 10} {
		if got := inFiles(rollup, plain); got != want {
			t.Errorf("plain %t: got %d bytes, want %d", plain, got, want)
		}
	}
	for locked, want := range map[string]int64{"500": 100 << 10, "700": 0} { // the host cannot take back locked pages
		if got := inFiles(rollup+"Locked: "+locked+" kB\n", true); got != want {
			t.Errorf("%s KiB locked: got %d bytes, want %d", locked, got, want)
		}
	}
	if got := inFiles("a header\nRss: 5000 kB\nPss: 1024 kB\n", false); got != 0 {
		t.Errorf("on an old kernel: got %d bytes, want none", got)
	}
}

// TestMappedFilesNeedNoExactSum: the kernel's counts tell that they are files.
func TestMappedFilesNeedNoExactSum(t *testing.T) {
	const status = "Name:\tp\nVmLck:\t  %d kB\nVmRSS:\t 5000 kB\nRssAnon:\t 1000 kB\nRssFile:\t 3000 kB\nRssShmem:\t 1000 kB\n"
	for _, c := range []struct {
		locked int
		plain  bool
		want   int64
	}{{0, false, 1000}, {0, true, 2000}, {500, false, 1500}, {9000, false, 4000}} {
		if got, ok := mostWithoutFiles(fmt.Sprintf(status, c.locked), c.plain); !ok || got != c.want<<10+inexact() {
			t.Errorf("%d KiB locked, plain %t: got %d bytes, %t, want %d KiB", c.locked, c.plain, got, ok, c.want)
		}
	}
	if _, ok := mostWithoutFiles("Name:\tp\nState:\tZ (zombie)\n", false); ok {
		t.Error("got memory of a process that has ended")
	}
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Close() }()
	const size = 4 << 20
	m, err := unix.Mmap(int(program.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	w := &Group{outside: true, plain: true}
	self, _ := w.see(strconv.Itoa(os.Getpid()))
	now := map[string]seen{"self": self}
	if got := w.withoutFiles(self.resident, self.resident, now); got != self.resident {
		t.Errorf("not above the limit: got %d bytes, want %d", got, self.resident)
	}
	id := strconv.Itoa(os.Getpid()) + " " + self.start
	if got, most := w.residentOf(numberOf(id), id, 0)-w.mapped.mostOf(id, self), self.resident-size+2*inexact(); got > most+1<<20 {
		t.Errorf("a process that does not answer: got %d bytes, want at most %d", got, most)
	}
	if got, most := w.withoutFiles(self.resident, self.resident-1, now), self.resident-size+inexact(); got > most {
		t.Errorf("above the limit: got %d bytes, want at most %d", got, most)
	}
}

// TestAnOrdinaryProcessHasNoMoreThanItsMappings: the kernel's count of anonymous pages is that of the mappings, so that
// it does not end programs that do nothing unusual.
func TestAnOrdinaryProcessHasNoMoreThanItsMappings(t *testing.T) {
	child := exec.CommandContext(t.Context(), "cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = in.Close(), child.Wait() }()
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it waits for more now, and its memory stays as it is
		t.Fatal(err)
	}
	w := &Group{outside: true}
	read := func(name string) string { return w.readFrom(true, strconv.Itoa(child.Process.Pid), name) }
	rollup := read("smaps_rollup")
	pss, shown := field(rollup, "Pss")
	if size, ok := sizeOf(read("status"), rollup, read("status")); size != pss || !ok || !shown || pss == 0 {
		t.Errorf("got %d bytes, %v, want the %d of its mappings", size, ok, pss)
	}
}

// TestAProcessThatEndsMeanwhileCountsNothing: a process that ends between being listed and being read adds no memory.
// Otherwise programs that fork often would seem to have another copy of their memory.
func TestAProcessThatEndsMeanwhileCountsNothing(t *testing.T) {
	child := exec.CommandContext(t.Context(), "cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	w, p := &Group{outside: true}, strconv.Itoa(child.Process.Pid)
	s, _ := w.see(p)
	id := p + " " + s.start
	if n := w.residentOf(p, id, 1<<30); n == 0 {
		t.Error("a living process: got no memory")
	}
	if n := w.residentOf(p, p+" 1", 1<<30); n != 0 {
		t.Errorf("another process of the same number: got %d bytes", n)
	}
	var e exact
	sum, sure := e.sum([]string{p}, math.MaxInt64, func(string) (func() int64, func() (int64, bool)) {
		return func() int64 { return w.residentOf(p, id, 1<<30) }, func() (int64, bool) {
			_, _ = in.Close(), child.Wait()
			return sizeOf("", w.read(p, "smaps_rollup"), "")
		}
	})
	if sum != 0 || !sure {
		t.Errorf("an ended process: got %d bytes, sure %v, want none", sum, sure)
	}
}

// TestAttackAKillDoesNotWaitForTheWatch: a look that waits for a lock of a program ends only when the
// program is dead, so what comes before the kill may not wait for the look.
func TestAttackAKillDoesNotWaitForTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Group{quit: make(chan struct{}), done: make(chan struct{})}
		dead, stopped := make(chan struct{}), make(chan struct{})
		w.exact.reads.Go(func() { <-dead })
		go func() {
			defer close(w.done)
			defer w.exact.reads.Wait()
			<-w.quit
		}()
		w.Quit() // would block for ever if it waited
		go func() { w.Stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("Stop: got an end while a reading was under way, want it to wait")
		default:
		}
		close(dead) // the kill
		<-stopped
	})
}

// TestLateAnswersAreKeptWhileProgramsAreStopped: late sizes are kept, because on a busy machine each may be late. The size
// from a reading that began before the stop is not kept, because the programs still ran.
func TestLateAnswersAreKeptWhileProgramsAreStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e exact
		read := func() (int64, reading) {
			return e.read("2", func() (int64, bool) { <-time.NewTimer(time.Second).C; return 7, true }, time.Millisecond)
		}
		expect := func(when string, n int64, want reading) {
			t.Helper()
			if got, how := read(); got != n || how != want {
				t.Errorf("%s: got %d, %d, want %d, %d", when, got, how, n, want)
			}
		}
		expect("while they run", 0, late)
		e.keep()
		<-time.NewTimer(2 * time.Second).C
		expect("after the answer of a reading before the stop", 0, late)
		<-time.NewTimer(2 * time.Second).C
		expect("after the answer", 7, exactly)
		e.drop()
		expect("when they run again", 0, late)
		e.reads.Wait()
	})
}

// TestAServerOnOneProcessorKnowsTheHosts: any processor of the host may have added to a counter.
func TestAServerOnOneProcessorKnowsTheHosts(t *testing.T) {
	text, _ := os.ReadFile("/sys/devices/system/cpu/online")
	n := processorsIn(string(text))
	testkit.Need(t, "several processors", n > 1, "the host has one, or does not tell")
	if runtime.NumCPU() == 1 {
		if got, least := uncounted(), int64(32*n); got < least {
			t.Errorf("got %d, want at least %d", got, least)
		}
		return
	}
	runtime.LockOSThread() // and not unlocked, so that this thread ends with the test
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range n {
		if one.Count() == 0 && all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestProcessorsOfTheHostAreCounted: the server may run on fewer of them.
func TestProcessorsOfTheHostAreCounted(t *testing.T) {
	for list, want := range map[string]int{"0-63\n": 64, "0-3,6,8-9\n": 7, "0\n": 1, "": 0, "none\n": 0, "3-1": 0} {
		if got := processorsIn(list); got != want {
			t.Errorf("%q: got %d, want %d", list, got, want)
		}
	}
}
