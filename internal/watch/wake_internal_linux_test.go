package watch

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestForksThatBeganWhileStoppedGoOn: the kernel stops a fork that began while its parent was stopped and continued. So such
// processes are continued again for some time, unless the programs are being ended: who ends them stops some of them before.
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
		"IsBeingEnded": {&Group{free: true, continued: now.Add(-time.Second)}, false},
		"LongAgo":      {&Group{continued: now.Add(-wakeFor)}, false},
	} {
		if got := c.w.goesOn(now); got != c.want {
			t.Errorf("%s: got %t, want %t", name, got, c.want)
		}
	}
}

// TestOnlyForksAreContinued: what a program has stopped itself stays stopped. Such a process was in another call, or in none.
func TestOnlyForksAreContinued(t *testing.T) {
	for _, call := range forkCalls {
		if !beginsBy(call + " 0x1200011 0x0 0x0 0x7f0000000a10 0x0 0x0 0x7ffc00000000 0x7f0000000000\n") {
			t.Errorf("call %s does not start a process", call)
		}
	}
	if !beginsBy("") || beginsBy("running\n") || beginsBy("-1 0x7ffc00000000 0x7f0000000000\n") || beginsBy(strconv.Itoa(unix.SYS_KILL)+" 0x7 0x13 0x0 0x0 0x0 0x0 0x7ffc0 0x7f00\n") {
		t.Error("a process counts as a fork by another call, or one whose call is unknown does not")
	}
	for _, call := range []int{unix.SYS_CLONE, unix.SYS_CLONE3} {
		if !slices.Contains(forkCalls, strconv.Itoa(call)) {
			t.Errorf("call %d is missing", call)
		}
	}
	c := exec.CommandContext(t.Context(), "sh", "-c", "kill -STOP $$")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	w, p := &Group{outside: true, continued: time.Now()}, strconv.Itoa(c.Process.Pid)
	testkit.Until(t, "the process is stopped", func() bool { s, _ := w.see(p); return s.stopped })
	w.wake([]string{p}) // fails without a slot if it sends a signal
	if text := w.read(p, "syscall"); text == "" || beginsBy(text) {
		t.Errorf("a process that has stopped itself counts as a fork: %q", text)
	}
	if err := c.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the process goes on", func() bool { s, _ := w.see(p); return !s.stopped })
}

// TestOnlyForksOfBusyProcessesAreContinued: the watch itself can stop a fork only if its parent was starting it when the programs
// went on. Such a process ran, or waited where no signal reaches it, and a look sees when it no longer does.
func TestOnlyForksOfBusyProcessesAreContinued(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	self, idle := strconv.Itoa(os.Getpid()), strconv.Itoa(c.Process.Pid)
	w, stopped := &Group{outside: true, slot: &jail.Slot{}, forking: map[string]*forking{}}, seen{stopped: true, parent: idle}
	if runs, _ := w.busy(self); !runs {
		t.Error("a process that runs is not busy")
	}
	testkit.Until(t, "the process waits", func() bool { runs, waits := w.busy(idle); return !runs && !waits })
	if w.begins("7", stopped) || w.begins("7", seen{stopped: true, parent: "1"}) {
		t.Error("a child of a process that started none is continued")
	}
	w.unnoted = time.Now()
	if !w.begins("7", stopped) {
		t.Error("a stopped child of a process of which nothing is known is not continued")
	}
	w.unnoted = time.Time{}
	w.forking[idle] = &forking{at: time.Now()}
	if !w.begins("7", stopped) || !w.begins("7", seen{stopped: true, parent: "1"}) || w.begins("7", seen{parent: idle}) {
		t.Error("want stopped children of a process that may have started one, and those whose parent has ended")
	}
	if w.endForking(); w.forking[idle] == nil || !w.forking[idle].ended {
		t.Error("a process that is no longer busy is forgotten before a look could find what it had started")
	}
	if w.endForking(); w.forking[idle] != nil {
		t.Error("a process that is no longer busy is remembered")
	}
	w.forking[self] = &forking{at: time.Now().Add(-wakeFor)}
	if w.endForking(); w.forking[self] != nil {
		t.Error("a process is remembered for too long")
	}
}

// TestForksThatWaitAreNotForgotten: before its first instruction, a fork may wait where no signal reaches it, as for memory. It stops
// after that, so the watch does not forget its parent meanwhile.
func TestForksThatWaitAreNotForgotten(t *testing.T) {
	w := showing(t, "Name:\tx\nShdPnd:\t0000000000040000\n")
	w.forking = map[string]*forking{"5": {at: time.Now(), ended: true}}
	if s, ok := w.see("7"); !ok || w.begins("7", s) || w.forking["5"].ended {
		t.Errorf("got %+v, %v, and a parent that is forgotten %v, want it kept", s, ok, w.forking["5"].ended)
	}
}
