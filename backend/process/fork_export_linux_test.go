package process

import (
	"slices"
	"time"
)

// ForkAgain makes a backend fork every process that can be, not only the first
// one of a sandbox.
func ForkAgain(c *Config) { c.testOnlyForkAgain = true }

// eachServer calls f for all that is, or may become, a zygote.
func (b *Backend) eachServer(f func(n *forkServer)) {
	b.mu.Lock()
	halls := slices.Clone(b.halls)
	b.mu.Unlock()
	for _, h := range halls {
		h.forks.Each(func(n *forkServer) {
			n.mu.Lock()
			defer n.mu.Unlock()
			f(n)
		})
	}
}

// Jails is how many there are.
func (b *Backend) Jails() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.halls)
}

// Forks is how many forks the zygotes that wait now have made.
func (b *Backend) Forks() (count int) {
	b.eachServer(func(n *forkServer) { count += n.forks })
	return count
}

// Zygotes are the process numbers of those that wait.
func (b *Backend) Zygotes() (pids []int) {
	b.eachServer(func(n *forkServer) {
		if n.zygote != nil {
			pids = append(pids, n.zygote.PID())
		}
	})
	return pids
}

// BoundForks says when a backend, which has not been used yet, makes a zygote anew and gives one up.
func BoundForks(b *Backend, forks int, age, rest time.Duration, refused int) {
	b.forkBounds = forkBounds{forks, age, rest, refused}
}

// Tried tells whether an attempt to import packages ahead has ended since it was
// last asked, and how.
func Tried(b *Backend) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tried := b.loaded
	b.loaded = false
	return tried, b.noLoad
}

// Prepared is how many ready sandboxes have the files and streams of a program that is forked.
func Prepared(b *Backend) (count int) {
	b.ready.Each(func(s *sandbox) {
		if s.prepared.pipes != nil && s.prepared.driver.Name != "" {
			count++
		}
	})
	return count
}
