package jail

// The kernel does not bound how many epoll watches a sandbox adds. With Config.Notices every
// call that adds one waits for init, which counts them: programs may add only as many as the
// server has granted.

// FirstWatches is how many epoll watches programs may add before the first grant, FIRST in init.c.
const FirstWatches = 64

// OnWatches registers a function that is called when programs have added half of the epoll
// watches that were last granted. If that has happened already, it is called at once. Each call
// is in a goroutine of its own, and there is at most one for each Grant.
func (s *Slot) OnWatches(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onAsk = f
	if s.asks {
		go f()
	}
}

// AddsWatches reports whether programs have added FirstWatches/2 epoll watches or more. Where the
// kernel gives no notice of them it always returns true.
func (s *Slot) AddsWatches() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked || !s.jail.cfg.Notices
}

// Grant lets programs add n epoll watches from now on. What is left of earlier grants is lost. A
// call that adds a watch waits while none is left. n must be at least 2.
func (s *Slot) Grant(n int) error {
	s.mu.Lock()
	s.asks = false
	s.mu.Unlock()
	return s.conn.send(words('G', uint32(n)))
}
