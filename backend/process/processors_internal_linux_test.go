package process

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func setOf(cpus ...int) (set unix.CPUSet) {
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	return set
}

// TestSandboxesAreSpreadOverProcessors: each sandbox gets the processors that the fewest others have.
func TestSandboxesAreSpreadOverProcessors(t *testing.T) {
	have := setOf(1, 2, 5)
	var p processors
	for i, step := range []struct {
		want, from int
		set        unix.CPUSet
	}{
		{1, 0, setOf(1)}, {1, 0, setOf(2)}, {1, 1, setOf(5)}, // 1 and 2 have a sandbox each, so 5 is next
		{2, 4, setOf(2, 5)}, {1, 2, setOf(1)},
	} {
		if got := p.take(&have, step.want, step.from); got != step.set {
			t.Errorf("step %d: got %v, want %v", i, got[0], step.set[0])
		}
	}
	last := setOf(5)
	p.release(&last)
	p.release(&unix.CPUSet{})
	if got := p.take(&have, 1, 0); got != last {
		t.Errorf("after a sandbox has ended: got %v, want its processor", got[0])
	}
}

// TestASandboxThatHasEndedIsNotPinned: it has no process id, and the server stays on its own processors.
func TestASandboxThatHasEndedIsNotPinned(t *testing.T) {
	var before, after unix.CPUSet
	runtime.LockOSThread() // the processors of a thread
	defer runtime.UnlockOSThread()
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	var p processors
	for _, pid := range []int{0, -1} {
		if got := p.pin(pid, 0.5); got.Count() != 0 {
			t.Errorf("process %d: got %d processors, want none", pid, got.Count())
		}
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
		t.Errorf("the server had %d processors and has %d, %v", before.Count(), after.Count(), err)
	}
}
