package process

import (
	"sync"

	"golang.org/x/sys/unix"
)

// processors counts how many sandboxes are pinned to each processor of the machine. A new sandbox gets the
// processors with the fewest, because programs of two sandboxes on one processor take turns even while another processor is idle.
type processors struct {
	mu    sync.Mutex
	users map[int]int // sandboxes by processor; guarded by mu
}

// pin restricts a sandbox to as many processors as it may use. Its programs cannot change that, because the seccomp filter refuses it. The
// caller passes what pin returns to release when the sandbox has ended.
func (p *processors) pin(pid int, cores float64) (pinned unix.CPUSet) {
	var have unix.CPUSet
	if pid <= 0 || unix.SchedGetaffinity(0, &have) != nil { // the sandbox has ended; 0 would be this thread of the server
		return pinned
	}
	if want := wholeCores(cores); want < have.Count() {
		pinned = p.take(&have, want, pid)
		_ = unix.SchedSetaffinity(pid, &pinned)
	}
	return pinned
}

// take returns want of the processors in have, those with the fewest sandboxes, and counts one more sandbox on each. Among equals it begins
// at position from, modulo their number, so that not all servers of a machine begin with the same processor.
func (p *processors) take(have *unix.CPUSet, want, from int) (set unix.CPUSet) {
	all := make([]int, 0, have.Count())
	for cpu := range len(have) * 64 {
		if have.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users == nil {
		p.users = map[int]int{}
	}
	for set.Count() < want {
		best := -1
		for i := range all {
			cpu := all[(from+i)%len(all)]
			if !set.IsSet(cpu) && (best < 0 || p.users[cpu] < p.users[best]) {
				best = cpu
			}
		}
		set.Set(best)
		p.users[best]++
	}
	return set
}

// release counts one sandbox less on each processor that pin has returned.
func (p *processors) release(set *unix.CPUSet) {
	if set.Count() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for cpu := range p.users {
		if set.IsSet(cpu) {
			p.users[cpu]--
		}
	}
}

// pinAs restricts a process to the processors of another.
func pinAs(pid, other int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(other, &set) == nil {
		_ = unix.SchedSetaffinity(pid, &set)
	}
}
