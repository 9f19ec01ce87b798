package watch

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestACountThatWaitsDelaysNoOther: a program can hold what the count of its sandbox waits for. The count then
// goes on beside those of other sandboxes.
func TestACountThatWaitsDelaysNoOther(t *testing.T) {
	free, began := make(chan struct{}), 0
	var b beside[int]
	count := func() int { began++; <-free; return 7 }
	for range 3 {
		if _, done := b.ask(&patience{}, count); done {
			t.Fatal("a count that waits: got it done")
		}
	}
	close(free)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if n, done := b.ask(&patience{}, count); done {
			if n.value != 7 || began != 1 {
				t.Errorf("got %d of %d counts, want 7 of 1", n.value, began)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the count is not done")
		}
	}
}

// TestACountThatHasEndedIsSeen by the next look, also if that has no time to wait. On a busy machine looks are seconds apart,
// and a count that one of them does not see counts as one that stands still.
func TestACountThatHasEndedIsSeen(t *testing.T) {
	none := patience{waited: time.Hour}
	for range 100 {
		var b beside[int]
		free := make(chan struct{})
		count := func() int { <-free; return 7 }
		if _, done := b.ask(&none, count); done {
			t.Fatal("a count that waits: got it done")
		}
		close(free)
		testkit.Until(t, "the count ends", func() bool { return len(b.result) == 1 })
		if got, done := b.ask(&none, count); !done || got.value != 7 {
			t.Fatalf("a count that has ended: got %d, %v, want 7, true", got.value, done)
		}
	}
}

// TestLooksWaitForAllCountsTogether: many sandboxes whose counts wait delay a look little more than one does.
func TestLooksWaitForAllCountsTogether(t *testing.T) {
	p := patience{}
	if got := p.left(); got != mostPatience {
		t.Errorf("at first: got %v, want %v", got, mostPatience)
	}
	free := make(chan struct{})
	defer close(free)
	var b beside[int]
	if _, done := b.ask(&p, func() int { <-free; return 0 }); done {
		t.Fatal("a count that waits: got it done")
	}
	if got := p.left(); got != leastPatience {
		t.Errorf("after a count that waits: got %v, want %v", got, leastPatience)
	}
}

// TestACountThatStandsEndsItsSandbox, once, also if the server itself was stopped meanwhile. What the count finds then is not
// held against the programs that run after them.
func TestACountThatStandsEndsItsSandbox(t *testing.T) {
	o, reasons, free := NewObjects(0), make(chan string, 10), make(chan struct{})
	s := &Target{End: func(excess string) { reasons <- excess }}
	look := func(after time.Duration) {
		s.directories.asked = s.directories.asked.Add(-after)
		if _, done := ask(o, s, &s.directories, "open directories", func() string { <-free; return "too many" }); done {
			t.Fatal("a count that waits: got it done")
		}
		o.Wait()
	}
	look(0)
	look(time.Hour) // the server was stopped
	if len(reasons) != 0 {
		t.Fatalf("after one look: its programs are ended for %q", <-reasons)
	}
	for range 5 * mostStill / mostBetween {
		look(mostBetween)
	}
	if len(reasons) != 1 {
		t.Fatalf("got programs ended %d times, want once", len(reasons))
	}
	if got, want := <-reasons, "open directories that its programs keep from being counted"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	close(free)
	testkit.Until(t, "another count ends", func() bool {
		found, done := ask(o, s, &s.directories, "open directories", func() string { return "other" })
		if done && found.value != "other" {
			t.Errorf("after its programs were ended: got %q, want what another count finds", found.value)
		}
		return done
	})
}

// TestACountThatRunsEndsNoSandbox: on a busy machine a count of many objects takes longer than one may wait.
func TestACountThatRunsEndsNoSandbox(t *testing.T) {
	o, ended := NewObjects(0), make(chan struct{})
	var stop atomic.Bool
	s := &Target{End: func(excess string) { t.Errorf("its programs are ended for %q", excess) }}
	count := func() string {
		defer close(ended)
		for !stop.Load() {
			runtime.Gosched()
		}
		return ""
	}
	for range 2 * mostStill / mostBetween {
		if b := &s.directories; b.thread != nil {
			testkit.Until(t, "the count runs", func() bool {
				return b.thread.Load() != 0 && timeOf(b.thread.Load()) >= b.used+mostBetween/leastRunning
			})
		}
		s.directories.asked = s.directories.asked.Add(-mostBetween)
		if _, done := ask(o, s, &s.directories, "open directories", count); done {
			t.Fatal("a count that goes on: got it done")
		}
	}
	o.Wait()
	stop.Store(true)
	<-ended
}

// waits makes a directory like that of a process in /proc, in which the given files cannot be read to their end, as if a
// program held a lock that the kernel takes for that. It returns its name in /proc.
func waits(t *testing.T, files ...string) (process string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"fd", "task/1"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range files {
		name := filepath.Join(dir, f)
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // lets it be read
			if w, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
				_ = unix.Close(w)
			}
		})
	}
	return filepath.Join("..", dir)
}

// TestAHeldProcessDelaysNoCountOfDirectories: a program can keep the kernel from showing the calls of a process.
func TestAHeldProcessDelaysNoCountOfDirectories(t *testing.T) {
	process := waits(t, "task/1/syscall")
	s, o, done := &Target{Spend: func(time.Duration) time.Duration { return 0 }}, NewObjects(0), make(chan string)
	go func() { done <- s.overDirectories(o, []string{process}, 2*maxDirectories/mostSent) }()
	select {
	case got := <-done:
		if got != "" || s.counted >= 0 || s.directories.idle() {
			t.Errorf("got %q and a count at %v, want none, and a count at the next look", got, s.counted)
		}
	case <-time.NewTimer(time.Minute).C:
		t.Fatal("the look waits for a process of the sandbox")
	}
}

// TestFewFilesNeedNoCountBeside: sandboxes whose processes cannot hold too many directories cost no goroutine.
func TestFewFilesNeedNoCountBeside(t *testing.T) {
	s := &Target{}
	if got := s.overDirectories(NewObjects(0), nil, maxDirectories/mostSent); got != "" || !s.directories.idle() {
		t.Errorf("got %q and a count: %v, want neither", got, !s.directories.idle())
	}
}

// TestDescriptorsAreFoundWithoutStat: reading the stat file of a process may wait, status does not.
func TestDescriptorsAreFoundWithoutStat(t *testing.T) {
	process := waits(t, "stat")
	if err := os.Remove(filepath.Join("/proc", process, "fd")); err != nil {
		t.Fatal(err)
	}
	done := make(chan string)
	go func() { done <- filesOf(process) }()
	select {
	case got := <-done:
		if want := "/proc/" + process + "/fd"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	case <-time.NewTimer(time.Minute).C:
		t.Fatal("it waits for the stat file")
	}
}

// TestWaitsCostNoShare: a sandbox is not counted more seldom because a count of it had to wait, and at its worst as often
// as mostRest says. Counts that take much processor time make it more seldom.
func TestWaitsCostNoShare(t *testing.T) {
	count := timed(func() string { time.Sleep(50 * time.Millisecond); return "" })
	if count.took >= 50*time.Millisecond {
		t.Errorf("a count that sleeps: got %v of processor time", count.took)
	}
	now := time.Now()
	for took, want := range map[time.Duration]time.Duration{0: mostRest, time.Millisecond: mostRest, 100 * time.Millisecond: tablesRest * 100 * time.Millisecond} {
		s := &Target{Spend: func(time.Duration) time.Duration { return 5 * time.Second }}
		if s.restFrom(now, took); s.tablesFrom.Sub(now) != want {
			t.Errorf("ahead of its share, after a count that took %v: got a rest of %v, want %v", took, s.tablesFrom.Sub(now), want)
		}
		if s.restFrom(now, 0); s.tablesFrom.Sub(now) != want {
			t.Errorf("after a count that took %v and one that took nothing: got a rest of %v, want %v", took, s.tablesFrom.Sub(now), want)
		}
	}
}

// TestCountsThatProgramsHoldAreFound: a sandbox whose count stands still, or waits for many sets, is ended.
func TestCountsThatProgramsHoldAreFound(t *testing.T) {
	now := time.Now()
	var p progress
	look := func(after time.Duration) bool { now = now.Add(after); return p.stalls(now, false) }
	for range 5 {
		if p.begin(now); look(mostStill / 2) {
			t.Fatal("a count that has just begun stalls")
		}
		if p.steps.Add(1); look(2 * mostStill) {
			t.Fatal("a count that has read something stalls")
		}
		if p.stalls(now.Add(2*mostStill), true) {
			t.Error("a count that has ended stalls")
		}
		if !look(2 * mostStill) {
			t.Error("a count that has read nothing for long does not stall")
		}
		if look(2 * mostStill) {
			t.Error("a count stalls twice")
		}
	}
	p.begin(now)
	for range mostSlow {
		p.read(time.Second)
	}
	if p.read(time.Millisecond); look(0) {
		t.Errorf("a count that has waited for %d sets stalls", mostSlow)
	}
	if p.read(time.Second); !look(0) {
		t.Error("a count that has waited for more sets does not stall")
	}
	if p.begin(now); look(0) {
		t.Error("the next count stalls")
	}
}

// TestDirectoriesAreFound: open directories are told from other descriptors.
func TestDirectoriesAreFound(t *testing.T) {
	self := []string{strconv.Itoa(os.Getpid())}
	before := 0
	for excessOfDirectories(self, before) != "" {
		before++
	}
	var held [3]*os.File
	for i := range held {
		var err error
		if held[i], err = os.Open("/"); err != nil {
			t.Fatal(err)
		}
	}
	if excessOfDirectories(self, before+len(held)-1) == "" {
		t.Errorf("%d more directories are not found", len(held))
	}
	if got := excessOfDirectories(self, before+len(held)); got != "" {
		t.Errorf("at the bound: got %q, want no excess", got)
	}
	for _, f := range held {
		_ = f.Close()
	}
}

// TestProcessesThatEndHideNoDirectories: the kernel no longer shows the descriptors of a process that is ending. They must not
// count as hidden, or many processes that end at once would have the sandbox ended.
func TestProcessesThatEndHideNoDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		statm string
		err   error
		hides bool
	}{
		"Hidden": {"100 50 20 1 0 30 0\n", fs.ErrPermission, true},
		"Shown":  {"100 50 20 1 0 30 0\n", nil, false},
		"Gone":   {"100 50 20 1 0 30 0\n", fs.ErrNotExist, false},
		"Ending": {"0 0 0 0 0 0 0\n", fs.ErrPermission, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "fd")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(filepath.Dir(dir), "statm"), []byte(c.statm), 0o600), os.WriteFile(filepath.Join(dir, "0"), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if got := hiddenFiles(dir, c.err); got > 0 != c.hides {
				t.Errorf("got %d hidden descriptors, want some: %t", got, c.hides)
			}
		})
	}
}

// TestDirectoriesWithoutTheFirstThreadAreFound: a process goes on when its first thread has ended. The kernel shows its
// descriptors only at the other threads.
func TestDirectoriesWithoutTheFirstThreadAreFound(t *testing.T) {
	python, err := exec.LookPath("python3")
	testkit.Need(t, "python", err == nil, "no python3")
	const held = 8
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import ctypes, os, platform, threading, time
held = [os.open("/", os.O_RDONLY) for _ in range(`+strconv.Itoa(held)+`)]
def stays():
    while open("/proc/self/stat").read().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.001)
    print("alone", flush=True)
    time.sleep(600)
threading.Thread(target=stays).start()
ctypes.CDLL(None).syscall(93 if platform.machine() == "aarch64" else 60, 0)
`)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "alone\n" {
		t.Fatalf("got %q, %v, want that the first thread ends", line, err)
	}
	process := []string{strconv.Itoa(cmd.Process.Pid)}
	if excessOfDirectories(process, held-1) == "" {
		t.Errorf("%d directories are not found", held)
	}
	if got := countFiles(filesOf(process[0])); got < held {
		t.Errorf("got %d descriptors, want %d at least", got, held)
	}
}

// TestASandboxThatEndsSlowlyDelaysNoOther: programs are ended beside the counts of other sandboxes, and once.
func TestASandboxThatEndsSlowlyDelaysNoOther(t *testing.T) {
	o, free, reasons := NewObjects(0), make(chan struct{}), make(chan string, 3)
	s := &Target{End: func(excess string) { reasons <- excess; <-free }}
	o.end(s, "first")
	o.end(s, "second")
	close(free)
	o.Wait()
	o.end(s, "third")
	o.Wait()
	close(reasons)
	var got []string
	for r := range reasons {
		got = append(got, r)
	}
	if len(got) != 2 || got[0] != "first" || got[1] != "third" {
		t.Errorf("got programs ended for %q, want [first third]", got)
	}
}

// TestARestDelaysNoOther: a sandbox that is ahead of its share of the server's time is counted later.
func TestARestDelaysNoOther(t *testing.T) {
	s := &Target{tablesFrom: time.Now().Add(time.Hour), Hold: func() (func(), error) {
		t.Error("it is counted during its rest")
		return nil, os.ErrClosed
	}}
	if got := s.overTables(NewObjects(0)); got != "" || s.counted >= 0 {
		t.Errorf("during a rest: got %q and a count at %v, want none and a count at the next look", got, s.counted)
	}
}
