package watch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestEqualLocksOfWholeFilesCountEach: a process may have locked a file through several open files of its own. The
// kernel writes the same line for each.
func TestEqualLocksOfWholeFilesCountEach(t *testing.T) {
	var text strings.Builder
	for i := range 900 {
		fmt.Fprintf(&text, "%d: FLOCK  ADVISORY  READ 42 00:1b:5 0 EOF\n", i)
	}
	got := countLocks(strings.NewReader(text.String()), nil)
	if want := map[int]int{42: 900}; !maps.Equal(got.whole, want) || len(got.byPID) != 0 || got.lines != 900 {
		t.Errorf("got %v and %v in %d lines, want %v", got.whole, got.byPID, got.lines, want)
	}
}

// TestLocksBelongToAFileSystem: the process that has taken a lock of a whole file may have ended, and its number may be
// that of a process of another sandbox.
func TestLocksBelongToAFileSystem(t *testing.T) {
	const text = "1: FLOCK  ADVISORY  READ 7 00:1b:5 0 EOF\n2: FLOCK  ADVISORY  READ 7 00:1b:5 0 EOF\n" +
		"3: POSIX  ADVISORY  WRITE 99 00:1b:5 0 0\n4: POSIX  ADVISORY  WRITE 7 08:01:5 0 0\n"
	one, other := &Target{}, &Target{}
	l := countLocks(strings.NewReader(text), map[uint64]*Target{unix.Mkdev(0, 0x1b): one})
	if l.held[one] != 3 || len(l.whole) != 0 || !maps.Equal(l.byPID, map[int]int{7: 1}) {
		t.Errorf("got %d locks of the sandbox, and %v and %v, want 3, none and one of process 7", l.held[one], l.whole, l.byPID)
	}
	l.whole[7], l.whole[99] = 9000, 9000
	owner := func(pid int) *Target {
		if pid == 7 {
			return other
		}
		return nil
	}
	l.add(owner, func(*Target) int { return 30 })
	if l.held[one] != 3 || l.held[other] != 31 {
		t.Errorf("got %d and %d locks, want 3 and 31", l.held[one], l.held[other])
	}
}

// TestLocksOfAllSandboxesAreBounded: with many locks the kernel takes long to list them, and one more sandbox could take any
// number until they are listed again.
func TestLocksOfAllSandboxesAreBounded(t *testing.T) {
	few, many, most, over := &Target{}, &Target{}, &Target{}, &Target{}
	l := locks{held: map[*Target]int{few: allLocks - 8000, many: 3900, most: 4000, over: maxLocks + 1}}
	if got := l.over(); len(got) != 1 || got[over] != "more than 4096 file locks" {
		t.Errorf("at the bound: got %v, want only what is over its own bound", got)
	}
	l.held[many] = 4000 - 1
	l.held[few] += 2
	got := l.over()
	if want := "4000 file locks, where all sandboxes together have more than 8192"; len(got) != 2 || got[most] != want || got[over] == "" {
		t.Errorf("above the bound: got %v, want %q of the one with most", got, want)
	}
}

// TestFewLocksEndNoSandbox, however many others hold: one caller may have many sandboxes.
func TestFewLocksEndNoSandbox(t *testing.T) {
	honest, l := &Target{}, locks{held: map[*Target]int{}}
	l.held[honest] = fewLocks
	for range allLocks / (fewLocks - 1) {
		l.held[&Target{}] = fewLocks - 1
	}
	if got := l.over(); len(got) != 0 {
		t.Errorf("many sandboxes with few locks: got %d of them ended, want none", len(got))
	}
	more := &Target{}
	l.held[more] = fewLocks + 1
	if got := l.over(); len(got) != 1 || got[more] == "" {
		t.Errorf("one with more: got %v, want that alone", got)
	}
}

// TestMappingsOfLockedFilesAreNoLocksOfAll: a program can lock the libraries that others map.
func TestMappingsOfLockedFilesAreNoLocksOfAll(t *testing.T) {
	honest, other, l := &Target{}, &Target{}, locks{held: map[*Target]int{}, mapped: map[*Target]int{}, unowned: maxLocks + 4}
	l.addWholes(honest, wholes{open: 1, mapped: 4000})
	for range 3 {
		l.addWholes(&Target{}, wholes{open: 3000, mapped: 30})
	}
	if got := l.over(); len(got) != 1 || got[honest] != "" {
		t.Errorf("got %v, want one of the three with most locks", got)
	}
	l.addWholes(other, wholes{open: 4000, mapped: 1000})
	if got := l.over(); got[other] != "more than 4096 file locks" || l.held[honest] != 1 {
		t.Errorf("got %v, and %d locks of the honest one, want the other ended for its own bound, and 1", got, l.held[honest])
	}
}

// TestLocksElsewhereCountIfThereAreMany, also of sandboxes within their own bounds.
func TestLocksElsewhereCountIfThereAreMany(t *testing.T) {
	s := &Target{}
	for lines, want := range map[int]int{allLocks: 0, allLocks + 1: 30} {
		l := locks{held: map[*Target]int{}, whole: map[int]int{7: 4000}, lines: lines}
		l.add(func(int) *Target { return s }, func(*Target) int { return 30 })
		if l.held[s] != want {
			t.Errorf("in %d lines: got %d locks, want %d", lines, l.held[s], want)
		}
	}
}

// TestLocksAreReadUntilASandboxHasTooMany: reading further ones takes long.
func TestLocksAreReadUntilASandboxHasTooMany(t *testing.T) {
	text := strings.Repeat("1: FLOCK  ADVISORY  READ 7 00:1b:5 0 EOF\n", 2*maxLocks)
	one := &Target{}
	l := countLocks(strings.NewReader(text), map[uint64]*Target{unix.Mkdev(0, 0x1b): one})
	if want := maxLocks + 1; l.held[one] != want || l.lines != want {
		t.Errorf("got %d locks in %d lines, want %d", l.held[one], l.lines, want)
	}
}

// TestRecordLocksAreReadOfDescriptors: all descriptors of a file show the same record locks of the process.
func TestRecordLocksAreReadOfDescriptors(t *testing.T) {
	const text = "pos:\t0\nflags:\t0100000\nmnt_id:\t29\nino:\t5\n" +
		"lock:\t1: FLOCK  ADVISORY  READ 42 00:1b:5 0 EOF\n" +
		"lock:\t2: POSIX  ADVISORY  WRITE 42 00:1b:5 0 0\nlock:\t3: POSIX  ADVISORY  WRITE 42 00:1b:5 2 2\n"
	counted := map[string]bool{}
	for i, want := range []int{2, 0} {
		if got := recordsIn(strings.NewReader(text), counted, 9); got != want {
			t.Errorf("descriptor %d: got %d locks, want %d", i, got, want)
		}
	}
	if got := recordsIn(strings.NewReader(text), map[string]bool{}, 1); got != 1 {
		t.Errorf("got %d locks, want no more than 1", got)
	}
}

// TestCountsOfUnownedLocksAreCharged: a sandbox with many descriptors makes a count of unowned locks long, so it is charged to
// the sandbox. The last count is used for a while, unless there are many more locks.
func TestCountsOfUnownedLocksAreCharged(t *testing.T) {
	counts, charged := 0, 0
	s := &Target{
		Hold:  func() (func(), error) { counts++; return nil, errors.New("closed") },
		Spend: func(time.Duration) time.Duration { charged++; return time.Hour },
	}
	look := func(unowned int) *locks {
		l := &locks{held: map[*Target]int{}, unowned: unowned}
		testkit.Until(t, "the locks are counted", func() bool { return NewObjects(0).addUnowned(l, []*Target{s}) })
		return l
	}
	if first := look(maxLocks + 1); counts == 0 || charged != 1 || first.kept[s] {
		t.Fatalf("the first look: %d counts and %d charges, kept %t, want a count that is charged", counts, charged, first.kept[s])
	}
	before := counts
	s.lastWholes.n.open = 3000
	if l := look(maxLocks + 1 + fewLocks); counts != before || charged != 1 || !l.kept[s] || l.held[s] != 3000 {
		t.Errorf("while it is ahead: %d more counts, %d locks, want the last count of 3000", counts-before, l.held[s])
	}
	if l := look(maxLocks + 2 + fewLocks); counts == before || charged != 2 || l.kept[s] || l.held[s] != 0 {
		t.Errorf("with many more locks: %d more counts, %d locks, want a new count of none", counts-before, l.held[s])
	}
}

// TestLocksThatAreLeftOutAreCounted: in a container /proc/locks leaves out locks whose process has ended. Descriptors show them.
func TestLocksThatAreLeftOutAreCounted(t *testing.T) {
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if err = unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	self, many := strconv.Itoa(os.Getpid()), []string{}
	var shared []int // each has the open file that is locked
	defer func() {
		for _, fd := range shared {
			_ = unix.Close(fd)
		}
	}()
	for range 100 {
		fd, err := unix.Dup(int(file.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		shared = append(shared, fd)
	}
	for range maxLocks/len(shared) + 1 { // an open file that processes share counts for each
		many = append(many, self)
	}
	s, o := &Target{Spend: func(time.Duration) time.Duration { return 0 }}, NewObjects(0)
	count := func(processes []string, all bool) (excess string) {
		testkit.Until(t, "they are counted", func() bool {
			excess = s.overLeftOut(o, processes, all)
			o.patience = patience{}
			return s.leftOut.idle()
		})
		return excess
	}
	if got := count(many, true); got != "" {
		t.Errorf("got %q where /proc/locks lists all locks, want none", got)
	}
	if got := count(many[:1], false); got != "" {
		t.Errorf("got %q for few descriptors, want none", got)
	}
	if got := count(many, false); got == "" {
		t.Error("too many descriptors of locked files are not found")
	}
}
