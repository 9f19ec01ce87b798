package watch

import "time"

// spent adds up the processor time of a sandbox's processes. The kernel keeps that of a
// process that has ended for whoever waits for it. It drops the time of one for which
// nobody waits because its parent ignores SIGCHLD. spent notices such time by what it saw
// of the process while that lived, and so not that of very short ones.
type spent struct {
	last   map[string]times // of the processes of the last look, by number and start
	reaped time.Duration    // of the processes that init had waited for
	owed   [2]time.Duration // of processes that ended and that nobody has waited for yet, the earlier ones first
	credit time.Duration    // was waited for at the last look, of processes that were not missed yet
	looks  int
	lost   time.Duration // nobody has waited for
}

// times is the processor time of a process, and of those that it has waited for.
type times struct{ own, waited time.Duration }

// owedLooks is how many looks at least a process may take to be waited for.
const owedLooks = 10

// look takes what the processes have used by now, and what those had that init waited
// for. It returns what the former and the lost ones have used.
func (s *spent) look(now map[string]times, reaped time.Duration) (sum time.Duration) {
	var gone time.Duration
	paid := reaped - s.reaped
	for id, p := range now {
		sum += p.own + p.waited
		paid += p.waited - s.last[id].waited
	}
	for id, p := range s.last {
		if _, lives := now[id]; !lives {
			gone += p.own + p.waited
		}
	}
	s.last, s.reaped = now, reaped
	s.owed[1] += gone
	rest := paid + s.credit
	for i, o := range s.owed {
		o = min(o, max(rest, 0))
		s.owed[i] -= o
		rest -= o
	}
	s.credit = max(min(rest, paid), 0)
	if s.looks++; s.looks%owedLooks == 0 {
		s.lost += s.owed[0]
		s.owed = [2]time.Duration{s.owed[1]}
	}
	return sum + s.lost
}
