package process

import "time"

// ForkAgain makes a backend fork every process that can be, not only the first
// one of a sandbox.
func ForkAgain(c *Config) { c.testOnlyForkAgain = true }

// Forks is how many forks the zygotes that wait now have made.
func (b *Backend) Forks() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.halls {
		h.forkMu.Lock()
		for _, x := range h.nests {
			n += x.forks
		}
		h.forkMu.Unlock()
	}
	return n
}

// Zygotes are the process numbers of those that wait.
func (b *Backend) Zygotes() (pids []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.halls {
		h.forkMu.Lock()
		for _, n := range h.nests {
			if n.zygote != nil {
				pids = append(pids, n.zygote.PID())
			}
		}
		h.forkMu.Unlock()
	}
	return pids
}

// BoundForks says when a backend, which has not been used yet, makes a zygote anew and gives one up.
func BoundForks(b *Backend, forks int, age, rest time.Duration, refused int) {
	b.forkBounds = forkBounds{forks, age, rest, refused}
}
