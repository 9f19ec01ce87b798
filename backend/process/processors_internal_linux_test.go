package process

import (
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
