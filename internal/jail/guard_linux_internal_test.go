package jail

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// testSlot makes a sandbox that ends with the test.
func testSlot(t *testing.T) (*Jail, *Slot) {
	t.Helper()
	j, err := Open(testConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	s := made(t, j)
	t.Cleanup(func() { _ = s.Close() })
	return j, s
}

// TestInitAndZygotesAreFirstOutOfMemory: when the host's memory is used up, the kernel
// ends what belongs to sandboxes before the server and everything else.
func TestInitAndZygotesAreFirstOutOfMemory(t *testing.T) {
	j, s := testSlot(t)
	z := testZygote(t, j)
	for name, pid := range map[string]int{"init": s.PID(), "zygote": z.PID()} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if got := strings.TrimSpace(string(b)); err != nil || got != "1000" {
			t.Errorf("oom_score_adj of %s: got %q, %v, want 1000", name, got, err)
		}
	}
}

// TestInitEndsProgramsBeforeTheyRun: the kernel ends the programs of a sandbox when init runs after its kill.
// So init gets the highest priority, and does not wait for thousands of programs that use the processor.
func TestInitEndsProgramsBeforeTheyRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("an ordinary user cannot raise a rank")
	}
	_, s := testSlot(t)
	s.hurry()
	if got, err := unix.Getpriority(unix.PRIO_PROCESS, s.PID()); err != nil || got != 20-highestRank { // the call returns 20 less the nice value
		t.Errorf("got rank %d, %v, want %d", got, err, 20-highestRank)
	}
}

// TestStartFailsWithACallBeforeIt: a program never runs with less than what was asked
// for. Under this limit init cannot keep its own socket apart from the program's streams.
func TestStartFailsWithACallBeforeIt(t *testing.T) {
	_, s := testSlot(t)
	limit := unix.Rlimit{Cur: 70, Max: 70}
	if err := unix.Prlimit(s.PID(), unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	fd := int(null.Fd())
	p, err := s.Start(Command{Argv: []string{"/bin/sh", "-c", ":"}, Dir: "/", Files: []int{fd, fd, fd}})
	if err != nil {
		t.Fatal(err)
	}
	timer := time.NewTimer(10 * time.Second)
	defer timer.Stop()
	select {
	case <-p.Done():
	case <-timer.C:
		t.Fatal("got neither a run nor an error within 10 s, want one of them")
	}
	if _, err := p.Exit(); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Exit: got %v, want %v: the copy of the socket could not be made", err, unix.EINVAL)
	}
}
