package watch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestProcessesThatProgramsStopStayStopped: the watch continues the processes that it has stopped. It leaves out those that a program had
// stopped before, but not if a program has continued them before the watch stopped the programs.
func TestProcessesThatProgramsStopStayStopped(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	w, p := &Group{outside: true}, strconv.Itoa(c.Process.Pid)
	state := func(stopped bool) {
		t.Helper()
		signal := map[bool]unix.Signal{true: unix.SIGSTOP, false: unix.SIGCONT}[stopped]
		if err := c.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "the process is stopped or goes on", func() bool { s, _ := w.see(p); return s.stopped == stopped })
	}
	note := func() { w.own = map[string]int64{p: rests(w.read(p, "status"))} }
	sleeps := func() {
		t.Helper()
		testkit.Until(t, "the process sleeps", func() bool { s, _ := inStatus(w.read(p, "status"), "State"); return s == "S" })
	}
	state(true)
	note()
	if got := w.stillOwn(); len(got) != 1 || got[0] != c.Process.Pid {
		t.Errorf("a stopped process: got %v, want it", got)
	}
	state(false)
	if got := w.stillOwn(); len(got) != 0 {
		t.Errorf("it goes on: got %v, want none", got)
	}
	state(true)
	if got := w.stillOwn(); len(got) != 0 {
		t.Errorf("it went on and was stopped by another one: got %v, want none", got)
	}
	state(false)
	sleeps()
	note()
	state(true)
	if got := w.stillOwn(); len(got) != 1 {
		t.Errorf("it was about to stop: got %v, want it", got)
	}
	state(false)
	state(true)
	if got := w.stillOwn(); len(got) != 0 {
		t.Errorf("it was about to stop, went on and was stopped by another one: got %v, want none", got)
	}
	if !willStop("\nShdPnd:\t0000000000040000\n") || willStop("\nShdPnd:\t0000000000020000\n") || willStop("") {
		t.Error("a pending SIGSTOP is not seen, or another signal is taken for it")
	}
	w.own = map[string]int64{"1": 7}
	w.halted = time.Now()
	if w.noteOwn(); w.own["1"] != 7 || len(w.own) != 1 {
		t.Errorf("got %v while programs are stopped by the watch, want what was noted before", w.own)
	}
}

// TestWhatALateLookStopsIsNotOwn: a late look stops the programs from another goroutine, also while the watch reads which processes
// are stopped. Programs did not stop these themselves, so the watch must not stop them again.
func TestWhatALateLookStopsIsNotOwn(t *testing.T) {
	w := showing(t, "Name:\tx\nState:\tT (stopped)\nPPid:\t1\nvoluntary_ctxt_switches:\t1\n")
	w.own = map[string]int64{}
	w.noteStopped(0, func(string) bool { w.halts++; return true })
	if len(w.own) != 0 {
		t.Errorf("the programs were stopped meanwhile: got %v, want none", w.own)
	}
	if w.noteStopped(1, isStopped); len(w.own) != 1 {
		t.Errorf("they were not: got %v, want the stopped process", w.own)
	}
}

// showing returns a watch of a sandbox with one process, 7, which has the given status. Its parent is 5 and its state is D.
func showing(t *testing.T, status string) *Group {
	t.Helper()
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "7"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"status": status, "stat": "7 (x) D 5" + strings.Repeat(" 0", 48)} {
		if err := os.WriteFile(filepath.Join(proc, "7", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := os.Open(proc)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	w := &Group{slot: &jail.Slot{}}
	w.slot.Dirs[jail.DirProc] = int(dir.Fd())
	return w
}

// TestSignalsOfTerminalsAreNotLost: SIGCONT takes signals that stop a process from it if it has not handled them yet. It gets those
// of terminals again, with which shells stop their jobs.
func TestSignalsOfTerminalsAreNotLost(t *testing.T) {
	for pending, want := range map[string][]sent{
		"00000000000c0000": {{7, int(unix.SIGTSTP)}}, // with a SIGSTOP, which the watch has sent
		"0000000000300000": {{7, int(unix.SIGTTIN)}, {7, int(unix.SIGTTOU)}},
		"0000000000060100": nil,
	} {
		w := showing(t, "Name:\tx\nState:\tT (stopped)\nShdPnd:\t"+pending+"\n")
		if got := w.unhandled(); !slices.Equal(got, want) {
			t.Errorf("pending %s: got %v, want %v", pending, got, want)
		}
	}
}

// TestProcessesThatProgramsStopAreNotContinued: if the watch continued such a process and stopped it again, a program that continues it
// between the two would find it stopped for ever. Parents go on after their children.
func TestProcessesThatProgramsStopAreNotContinued(t *testing.T) {
	if all, signals := continuing([]string{"1", "2", "3"}, nil); !all || len(signals) > 0 {
		t.Errorf("nothing is stopped by programs: got %t, %v, want all at once", all, signals)
	}
	all, signals := continuing([]string{"1", "2", "30", "4", "x"}, []int{4})
	if want := []sent{{30, int(unix.SIGCONT)}, {2, int(unix.SIGCONT)}}; all || !slices.Equal(signals, want) {
		t.Errorf("one is: got %t, %v, want %v", all, signals, want)
	}
	var many []string
	for n := range mostContinued + 3 {
		many = append(many, strconv.Itoa(n+1))
	}
	all, signals = continuing(many, []int{5})
	if want := []sent{{5, int(unix.SIGSTOP)}}; !all || !slices.Equal(signals, want) {
		t.Errorf("one of many is: got %t, %v, want all, and then %v", all, signals, want)
	}
}

// TestProgramsGoOnOnce: two parts of the watch may both continue the programs after one stop. The second one knows no more what programs
// have stopped themselves, and must not continue it.
func TestProgramsGoOnOnce(t *testing.T) {
	w := showing(t, "Name:\tx\nState:\tT (stopped)\n") // it has no init, so a signal would fail
	w.halted = time.Now()
	w.continued = w.halted.Add(time.Millisecond)
	at := w.continued
	if w.goOn(); w.continued != at {
		t.Error("programs that go on already were continued again")
	}
}

// TestProgramsThatAreSparedAreStopped: programs that are being ended are not stopped for a measurement, and those that go on while
// others are being ended are. Otherwise a sum that is not sure would not be compared with the memory limit meanwhile.
func TestProgramsThatAreSparedAreStopped(t *testing.T) {
	w := &Group{}
	check := func(when string, want bool) {
		t.Helper()
		w.sharing.Lock()
		defer w.sharing.Unlock()
		if got := w.ending(); got != want {
			t.Errorf("%s: got ending %t, want %t", when, got, want)
		}
	}
	check("at first", false)
	_ = w.LiftQuota()
	check("all are being ended", true)
	_ = w.RestoreQuota()
	check("afterwards", false)
	_ = Sparing{w}.LiftQuota()
	check("some are being ended", false)
	_ = w.LiftQuota()
	check("and then all", true)
	_ = Sparing{w}.RestoreQuota()
	_ = Sparing{w}.LiftQuota()
	check("some again", false)
}
