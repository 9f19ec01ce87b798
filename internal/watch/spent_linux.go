package watch

import "time"

// spent adds up the processor time of a sandbox's processes. When a process ends, the kernel adds
// its time to that of the process that waits for it. If the parent ignores SIGCHLD, no process
// waits, and the kernel drops the time. spent then uses the time that the process had at the last look.
// It misses processes that live shorter than the interval between looks.
type spent struct {
	last   map[string]times // the processes of the last look, by number and start time
	reaped time.Duration    // of the processes that init had waited for
	owed   [2]time.Duration // of processes that have ended and were not waited for yet, the earlier ones first
	credit time.Duration    // time that was waited for at the last look, of processes that were not missing yet
	looks  int
	lost   time.Duration // time of processes that were never waited for
}

// times is the processor time of a process, and of the children that it has waited for.
type times struct{ own, waited time.Duration }

// owedLooks is the number of looks after which a process counts as never waited for.
const owedLooks = 10

// look takes the processor times of the live processes, and the sum that init has waited for. It
// returns the time of the live processes plus the lost time.
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
