package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestMappingsAreCounted: the count grows by the mappings that a process makes.
func TestMappingsAreCounted(t *testing.T) {
	const more = 500
	w, self := &Group{outside: true}, strconv.Itoa(os.Getpid())
	count := func(pid string) int64 { return w.bytesOf(true, pid, 1, 0) }
	before := count(self)
	m, err := unix.Mmap(-1, 0, 2*more*os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	for at := range more {
		if err := unix.Mprotect(m[2*at*os.Getpagesize():][:os.Getpagesize()], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	if got := count(self) - before; before < 10 || got < more || got > 3*more {
		t.Errorf("got %d and then %d more mappings, want some and then some %d more", before, got, 2*more)
	}
	if got := count("0"); got != 0 {
		t.Errorf("of no process: got %d mappings, want none", got)
	}
}

// TestMappingsOfLongNamesCountSeveralTimes: the list of them takes longer to read, so the count must not come later.
func TestMappingsOfLongNamesCountSeveralTimes(t *testing.T) {
	const more = 200
	self, page := strconv.Itoa(os.Getpid()), os.Getpagesize()
	dir := t.TempDir()
	for range 3 {
		dir = filepath.Join(dir, strings.Repeat("\n", 240)) // the kernel shows four bytes for each
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err = f.Truncate(int64(2 * more * page)); err != nil {
		t.Fatal(err)
	}
	before, _ := mappingsIn(unix.AT_FDCWD, "/proc/"+self)
	m, err := unix.Mmap(int(f.Fd()), 0, 2*more*page, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }()
	for at := range more {
		if err := unix.Mprotect(m[2*at*page:][:page], unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	if got, hidden := mappingsIn(unix.AT_FDCWD, "/proc/"+self); got-before < 8*2*more || hidden {
		t.Errorf("got %d more mappings, hidden %t, want at least %d", got-before, hidden, 8*2*more)
	}
}

// TestMappingsHaveLinksToAncestors: those of a fork take more for each ancestor, also if its parent has ended. Those of
// a program that was executed do not, and those of a long row of forks that end do not either.
func TestMappingsHaveLinksToAncestors(t *testing.T) {
	process := func(parent, layout string) seen { return seen{parent: parent, layout: layout, reserved: 1 << 20} }
	shell := process("1", "s")
	type look map[string]seen
	row := make([]look, 50)
	for i := range row {
		row[i] = look{strconv.Itoa(i+10) + " 0": process("1", "a"), strconv.Itoa(i+11) + " 0": process(strconv.Itoa(i+10), "a")}
	}
	for name, c := range map[string]struct {
		looks []look
		of    string
		want  int64
	}{
		"Executed":        {[]look{{"2 0": shell, "3 0": process("2", "a")}}, "3 0", 0},
		"Fork":            {[]look{{"2 0": shell, "3 0": process("2", "a"), "4 0": process("3", "a")}}, "4 0", 1},
		"ForkOfFork":      {[]look{{"5 0": process("3", "a"), "3 0": process("2", "a"), "7 0": process("5", "a")}}, "7 0", 2},
		"ForksBesideIt":   {[]look{{"3 0": process("2", "a"), "4 0": process("3", "a"), "5 0": process("3", "a"), "6 0": process("3", "a")}}, "6 0", 1},
		"ParentHasEnded":  {[]look{{"3 0": process("2", "a"), "4 0": process("3", "a")}, {"4 0": process("3", "a"), "5 0": process("1", "a"), "6 0": process("5", "a")}}, "6 0", 3},
		"ExecutesAnother": {[]look{{"3 0": process("2", "a"), "4 0": process("3", "a")}, {"3 0": process("2", "a"), "4 0": process("3", "b")}}, "4 0", 0},
		"ManyHaveEnded":   {row, "60 0", 4},
	} {
		t.Run(name, func(t *testing.T) {
			var m mapped
			for _, l := range c.looks {
				m.look(l)
			}
			if got := (m.each(c.of) - mappingBytes) / linkBytes; got != c.want {
				t.Errorf("got %d ancestors, want %d", got, c.want)
			}
		})
	}
}

// TestMostMappingsOfAProcess: it has no more than pages, nor than the kernel allows.
func TestMostMappingsOfAProcess(t *testing.T) {
	m := mapped{most: 100}
	page := int64(os.Getpagesize())
	for reserved, want := range map[int64]int64{0: 0, 5 * page: 5, 1000 * page: 100} {
		if got := m.mostOf("2 0", seen{reserved: reserved}) / mappingBytes; got != want {
			t.Errorf("%d bytes of address space: got %d mappings, want %d", reserved, got, want)
		}
	}
}

// TestMappingsAreCountedAsProgramsRun: a sandbox that does not run is not counted, and one whose count is dear is counted
// after it has used more.
func TestMappingsAreCountedAsProgramsRun(t *testing.T) {
	now := time.Now()
	m := mapped{}
	if !m.due(0, now) {
		t.Error("at first: got no count")
	}
	m.counted, m.at, m.rest = time.Second, now, idleCPU
	for _, c := range []struct {
		used, after time.Duration
		want        bool
	}{
		{0, time.Hour, false},
		{idleCPU / 2, 0, false},
		{idleCPU, 0, true},
		{idleCPU / 2, idleLong, true},
		{-idleCPU, 0, true}, // the kernel has dropped the time of a process
	} {
		if got := m.due(time.Second+c.used, now.Add(c.after)); got != c.want {
			t.Errorf("%v used within %v: got a count %t, want %t", c.used, c.after, got, c.want)
		}
	}
}

// TestASumAboveTheLimitReadsNoMore: reading the sizes of all processes may take long.
func TestASumAboveTheLimitReadsNoMore(t *testing.T) {
	for limit, want := range map[int64]int{100: 3, math.MaxInt64: 5} {
		var e exact
		var read []string
		sum, sure := e.sum(strings.Fields("1 2 3 4 5"), limit, func(p string) (func() int64, func() (int64, bool)) {
			return func() int64 { return 90 }, func() (int64, bool) { read = append(read, p); return 40, true }
		})
		if len(read) != want || sum != int64(want)*40 || !sure {
			t.Errorf("limit %d: got %d, sure %t, of %v, want that of %d processes", limit, sum, sure, read, want)
		}
	}
}

// TestAProcessThatDoesNotAnswerCountsWithItsMost mappings, and is counted again soon.
func TestAProcessThatDoesNotAnswerCountsWithItsMost(t *testing.T) {
	w := &Group{outside: true}
	held := waits(t, "maps")
	now := map[string]seen{"2 0": {path: held, layout: "a", reserved: 1 << 30}, fmt.Sprint(os.Getpid(), " 0"): {path: strconv.Itoa(os.Getpid()), layout: "b", reserved: 1 << 30}}
	w.mapped.most = 1 << 16
	w.mapped.look(now)
	got := w.mappings(now, time.Second, 16<<20) // this process alone does not take so much
	if most := w.mapped.mostOf("2 0", now["2 0"]); got < most || got > 2*most {
		t.Errorf("got %d bytes, want %d and some more", got, most)
	}
	if !w.mapped.due(time.Second, w.mapped.at) {
		t.Error("got no count at the next look")
	}
}

// TestPagesAboveTheLimitWaitForNoCount: if the pages alone exceed the limit, mappings are not counted, because that could
// block and the exact sum follows. The exact sum counts the mappings itself.
func TestPagesAboveTheLimitWaitForNoCount(t *testing.T) {
	w, self := &Group{outside: true}, strconv.Itoa(os.Getpid())
	s, ok := w.see(self)
	if !ok {
		t.Fatal("the test's process is not seen")
	}
	id := self + " " + s.start
	now := map[string]seen{id: s}
	w.mapped.look(now)
	for _, left := range [][]*held{nil, {{pagemap: -1}}} {
		w.outlived.left = left
		for room, counted := range map[int64]bool{-1: false, 0: true} {
			w.mapped.at = time.Time{}
			if w.mappings(now, time.Second, room); w.mapped.at.IsZero() == counted {
				t.Errorf("room for %d bytes, memory of %d ended processes: got a count %t, want %t", room, len(left), !counted, counted)
			}
		}
	}
	w.mapped.kept[id] = lineage{layout: s.layout}
	if sum, sure := w.sumOf([]string{self}, math.MaxInt64); sum == 0 || !sure {
		t.Errorf("got a sum of %d bytes, sure %t, want some", sum, sure)
	}
	if w.mapped.look(now); now[id].mapped < mappingBytes {
		t.Errorf("after an exact sum: got %d bytes of mappings, want some", now[id].mapped)
	}
}

// TestManyMappingsAreFound: processes whose address space has room for few are not counted, and those with more than they may
// have are ended.
func TestManyMappingsAreFound(t *testing.T) {
	s, o := &Target{Spend: func(time.Duration) time.Duration { return 0 }}, NewObjects(0)
	self := []string{strconv.Itoa(os.Getpid())}
	if got := s.overMappings(o, self, maxMappings); got != "" || !s.mappings.idle() || !s.mappingsFrom.IsZero() {
		t.Errorf("with little address space: got %q and a count, want neither", got)
	}
	if got := s.overMappings(o, self, maxMappings+1); got != "" || s.mappingsFrom.IsZero() {
		t.Errorf("with much address space: got %q, want a count that finds few mappings", got)
	}
	s.mappingsFrom, s.counted = time.Now().Add(time.Hour), time.Second
	if got := s.overMappings(o, self, maxMappings+1); got != "" || !s.hasUsed(time.Second, true, time.Now()) {
		t.Errorf("during the rest: got %q, want no count, and one after the rest although the sandbox does not run until then", got)
	}
	if got := countMappings([]string{self[0], self[0]}, 10, 1<<16); got <= 10 {
		t.Errorf("got %d mappings, want more than 10", got)
	}
	if got, want := s.mostMappings(7), int64(7); got != want {
		t.Errorf("seven pages: got %d mappings, want %d", got, want)
	}
}

// asUser runs a part of a test as an ordinary user, which for root is another process.
func asUser(t *testing.T, test func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		test()
		return
	}
	c := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
}

// TestHiddenMappingsCountWithTheMost: a server without root cannot read the list of a process that runs a file of another
// user that is executable and not readable. The kernel refuses that list as it refuses an ordinary user that of process 1.
func TestHiddenMappingsCountWithTheMost(t *testing.T) {
	asUser(t, func() {
		_, err := os.ReadFile("/proc/1/maps")
		testkit.Need(t, "a hidden process", errors.Is(err, fs.ErrPermission), "process 1 is another user's outside of containers")
		if got := countMappings([]string{"1"}, maxMappings, 3); got != 3 {
			t.Errorf("got %d mappings, want the most that a process may have", got)
		}
		if got := mappings("/proc/1", 3, func(string, string) bool { return false }); got != 4 {
			t.Errorf("got %d mappings of files, want one more than the limit", got)
		}
		w := &Group{outside: true}
		now := map[string]seen{"1 0": {path: "1", layout: "a", reserved: 1 << 30}}
		w.mapped.most = 1 << 16
		w.mapped.look(now)
		if got, want := w.mappings(now, time.Second, 0), w.mapped.mostOf("1 0", now["1 0"]); got != want {
			t.Errorf("got %d bytes, want %d", got, want)
		}
		if _, sure := w.sumOf([]string{"1"}, math.MaxInt64); !sure {
			t.Error("the exact sum is not sure")
		}
		if w.mapped.look(now); now["1 0"].mapped == 0 {
			t.Error("after an exact sum: got no bytes")
		}
	})
}

// TestHiddenMappingsOfFilesAreNoMoreThanTheKernelAllows: a process reserves much more address space than it can have mappings.
// The test's own process does so, and for root the part that runs as an ordinary user cannot read it.
func TestHiddenMappingsOfFilesAreNoMoreThanTheKernelAllows(t *testing.T) {
	asUser(t, func() {
		parent := strconv.Itoa(os.Getppid())
		_, err := os.ReadFile("/proc/" + parent + "/maps")
		testkit.Need(t, "a hidden process", errors.Is(err, fs.ErrPermission), "the test does not run as root")
		testkit.Need(t, "much address space", tablesOf(parent).pages > mostMappings(), "the kernel allows many mappings")
		if got, want := mappings("/proc/"+parent, math.MaxInt32, func(string, string) bool { return false }), int(mostMappings()); got != want {
			t.Errorf("got %d mappings of files, want the %d that a process may have", got, want)
		}
	})
}
