package store

// Waiting returns the number of Updates that wait for the writer.
func Waiting(s *Store) int {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	n := 0
	for _, j := range s.line.jobs {
		if j.state.Load() == jobWaiting {
			n++
		}
	}
	return n
}

// Closing reports whether Close has begun: further Updates are refused.
func Closing(s *Store) bool {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	return s.line.closed
}
