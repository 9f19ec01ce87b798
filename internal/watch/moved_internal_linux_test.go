package watch

import (
	"math"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestAttackForksThatEndHideNoMemory: a page counts in equal parts at the processes that share it. If some of them end before
// they are read, or begin after the list was made, the sum lacks their parts. Their memory then counts, and the sum is not sure,
// so that the programs are stopped for the next one.
func TestAttackForksThatEndHideNoMemory(t *testing.T) {
	self, p := strconv.Itoa(os.Getpid()), strconv.Itoa(os.Getppid())
	for name, c := range map[string]struct {
		before, after []string
		sure          bool
	}{
		"Stays":  {[]string{p}, []string{p}, true},
		"Ends":   {[]string{self, p}, []string{p}, false},
		"Begins": {[]string{p}, []string{self, p}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, lists := &Group{outside: true}, 0
			s, ok := w.see(self)
			if !ok || s.resident == 0 {
				t.Fatal("the test's process shows no memory")
			}
			sum, sure := w.sumOfAll(func() []string {
				lists++
				return [][]string{c.before, c.after}[lists-1]
			}, math.MaxInt64)
			if sure != c.sure || !sure && sum < s.resident/2 { // the test's process may have less by then
				t.Errorf("got %d bytes, sure %t, want sure %t, and at least half of %d bytes if not", sum, sure, c.sure, s.resident)
			}
		})
	}
}

// TestProcessesThatExecuteMeanwhileCount: before, they may have shared memory with others.
func TestProcessesThatExecuteMeanwhileCount(t *testing.T) {
	before := map[string]int64{"2 7 a": 50, "3 8 a": 40, "4 9 a": 1}
	after := map[string]int64{"2 7 a": 60, "3 8 b": 5, "4 9 a": 1}
	if got := moved(before, after); got != 45 {
		t.Errorf("got %d bytes, want 45", got)
	}
}

// TestForksThatBeganWhileStoppedGoOn: the kernel stops a fork that began while its parent was stopped and continued. So stopped
// processes are continued again for some time.
func TestForksThatBeganWhileStoppedGoOn(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		w    *Group
		want bool
	}{
		"NeverStopped": {&Group{}, false},
		"GoesOn":       {&Group{halted: now.Add(-time.Second), continued: now.Add(-time.Second / 2)}, true},
		"IsHalted":     {&Group{halted: now.Add(-time.Second / 2), continued: now.Add(-time.Second)}, false},
		"IsAhead":      {&Group{stopped: true, continued: now.Add(-time.Second)}, false},
		"LongAgo":      {&Group{continued: now.Add(-wakeFor)}, false},
	} {
		if got := c.w.goesOn(now); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
	c := exec.CommandContext(t.Context(), "sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	w, p := &Group{outside: true}, strconv.Itoa(c.Process.Pid)
	for _, signal := range []unix.Signal{unix.SIGSTOP, unix.SIGCONT} {
		if err := c.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "the process is stopped or goes on", func() bool { s, _ := w.see(p); return s.stopped == (signal == unix.SIGSTOP) })
	}
}
