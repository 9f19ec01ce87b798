package watch

import (
	"testing"
	"time"
)

// TestLostTimeIsCounted: the processor time of a process counts once, whether its parent waits
// for it, init does, or no process does.
func TestLostTimeIsCounted(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		parent, reaped, want time.Duration // what the parent and init have waited for; the sum in the end
	}{
		"parent waits": {100 * ms, 0, 105 * ms},
		"init waits":   {0, 100 * ms, 5 * ms},
		"nobody waits": {0, 0, 105 * ms},
	} {
		for _, delay := range []int{-1, 0, 1, owedLooks - 1} { // looks between the end and the wait
			t.Run(name, func(t *testing.T) {
				var s spent
				var sum time.Duration
				const ends = 5
				for i := range ends + 3*owedLooks {
					parent, reaped := times{own: 5 * ms}, time.Duration(0)
					if i >= ends+delay {
						parent.waited, reaped = c.parent, c.reaped
					}
					now := map[string]times{"1 7": parent}
					if i < ends {
						now["2 8"] = times{own: 100 * ms}
					}
					sum = s.look(now, reaped)
				}
				if sum != c.want {
					t.Errorf("delay %d: got %v, want %v", delay, sum, c.want)
				}
			})
		}
	}
}
