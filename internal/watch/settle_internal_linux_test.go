package watch

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestBusyMachineEndsNoProgram: programs that share memory are not counted as above their limit because the
// machine answers late. Those that never answer are, as are those that take memory although they were stopped.
func TestBusyMachineEndsNoProgram(t *testing.T) {
	const limit, shared, counted = 1 << 30, 400 << 20, 2 << 30
	for name, c := range map[string]struct {
		answer time.Duration // when they answer
		grows  int64         // what they take each time that they are stopped
		shares int64         // likewise, by forks that share all of their memory
		takes  int64         // likewise, and stay below their limit
		forks  bool          // a fork that had begun when they were stopped counts a moment later
		ended  int           // they are being ended when they are stopped for this time; 0: never
		fixed  bool          // they cannot be stopped
		quit   bool
		want   int64
		within time.Duration
	}{
		"Late":         {answer: time.Second, want: shared, within: time.Second + settleEvery},
		"Never":        {answer: time.Hour, want: counted, within: settleLimit + settleEvery},
		"Grows":        {answer: time.Hour, grows: settleGrowth, want: counted, within: 2 * settleEvery},
		"Forks":        {answer: time.Hour, shares: 2 * settleGrowth, want: counted, within: settleStops + 2*settleEvery},
		"TakesAtFirst": {answer: settleStops / 2, takes: settleGrowth, want: shared, within: settleStops/2 + settleEvery},
		"Takes":        {answer: time.Hour, takes: settleGrowth, want: counted, within: settleStops + 2*settleEvery},
		"GrowsAtFirst": {answer: 2 * settleStops, forks: true, want: shared, within: 2*settleStops + settleEvery},
		"NotStopped":   {answer: time.Hour, fixed: true, want: counted},
		"BeingEnded":   {answer: time.Hour, ended: 3, within: 2 * settleEvery},
		"WatchIsEnded": {answer: time.Hour, quit: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, stops, forgot, quit := time.Now(), 0, 0, make(chan struct{})
				if c.quit {
					close(quit)
				}
				got, ok := settle(limit, settling{
					halt: func() (halted, ended bool) { stops++; return !c.fixed, stops == c.ended },
					taken: func() (all, distinct int64) {
						if c.forks && stops > 1 {
							return 2 * counted, counted
						}
						if c.takes > 0 {
							most := min(int64(stops)*c.takes, limit-shared)
							return counted + int64(stops)*c.takes, shared + most
						}
						return counted + int64(stops)*(c.grows+c.shares), counted + int64(stops)*c.grows
					},
					sum: func() (int64, bool) {
						if time.Since(began) >= c.answer {
							return shared, true
						}
						return counted, false
					},
					forget: func() { forgot++ },
					quit:   quit,
				})
				if got != c.want || ok != (c.want > 0) {
					t.Errorf("got %d, %v, want %d", got, ok, c.want)
				}
				if grown := c.forks || c.shares > 0 || c.takes > 0; (forgot > 0) != grown {
					t.Errorf("kept sizes were dropped %d times, want it only if forks were found: %t", forgot, grown)
				}
				if took := time.Since(began); took > c.within { // of the bubble's clock
					t.Errorf("got it after %v, want it within %v", took, c.within)
				}
			})
		})
	}
}

// TestMemoryThatIsLeftForAMomentEndsNoProgram: if a fork ends while the watch reads it, the memory that it shared seems to
// outlive it and counts twice. It counts only if it is still there while the programs are stopped.
func TestMemoryThatIsLeftForAMomentEndsNoProgram(t *testing.T) {
	const limit, living = 100, 70
	for name, c := range map[string]struct {
		living int64
		stays  time.Duration
		want   int64
		within time.Duration
	}{
		"ForAMoment":    {living, 50 * time.Millisecond, living, 3 * settleEvery},
		"Stays":         {living, time.Hour, 2 * living, settleLimit + settleEvery},
		"AboveItsLimit": {limit + 1, time.Hour, limit + 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got, ok := settle(limit, settling{
					halt:  func() (halted, ended bool) { return true, false },
					taken: func() (all, distinct int64) { return living, living },
					sum: func() (int64, bool) {
						return withLeft(c.living, true, limit, func() int64 {
							if time.Since(began) > c.stays {
								return 0
							}
							return living
						})
					},
				})
				if got != c.want || !ok {
					t.Errorf("got %d, %v, want %d", got, ok, c.want)
				}
				if took := time.Since(began); took > c.within { // of the bubble's clock
					t.Errorf("got it after %v, want it within %v", took, c.within)
				}
			})
		})
	}
}
