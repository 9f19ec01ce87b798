package backend

import (
	"sync"
	"testing"
	"time"
)

// clock is a time that passes only while an Effort rests.
type clock struct {
	mu     sync.Mutex
	at     time.Time
	rested time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func (c *clock) sleep(d time.Duration, _ <-chan struct{}) {
	c.pass(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rested += d
}

// TestASandboxHasATenthOfACore: after its burst, for cheap and for expensive items.
func TestASandboxHasATenthOfACore(t *testing.T) {
	for _, cost := range []time.Duration{CostExit, CostRead, CostPiece, CostQuestion, CostConnection, CostOf(64 << 10)} {
		c := &clock{at: time.Unix(1, 0)}
		e := NewEffortAt(c.now, c.sleep)
		used := time.Duration(0)
		for c.now().Before(time.Unix(61, 0)) {
			e.Pace(cost)
			used += cost
		}
		if most := time.Duration(EffortShare*float64(time.Minute)) + EffortBurst + 100*cost; used > most {
			t.Errorf("items of %v cost %v in a minute, want at most %v", cost, used, most)
		}
		if least := time.Duration(0.3 * EffortShare * float64(time.Minute)); used < least {
			t.Errorf("items of %v got %v in a minute, want at least %v: rests are too long", cost, used, least)
		}
	}
}

// TestParallelCallersHaveATenthOfACore: together, however many there are.
func TestParallelCallersHaveATenthOfACore(t *testing.T) {
	for _, callers := range []int{1, 16, 128, 512} {
		for _, cost := range []time.Duration{CostQuestion, CostConnection} {
			c := &clock{at: time.Unix(1, 0)}
			e := NewEffortAt(c.now, nil)
			next, used := make([]time.Time, callers), time.Duration(0) // when each caller has its next item
			for {
				first := 0
				for i := range next {
					if next[i].Before(next[first]) {
						first = i
					}
				}
				if c.at = later(c.at, next[first]); c.at.After(time.Unix(61, 0)) {
					break
				}
				used += cost
				rest := e.Spend(cost)
				if rest > 0 {
					used += effortWake
				}
				next[first] = c.at.Add(rest + time.Microsecond)
			}
			most := time.Duration(EffortShare*float64(time.Minute)) + EffortBurst + time.Duration(callers)*(cost+effortWake)
			if used > most {
				t.Errorf("%d callers with items of %v cost %v in a minute, want at most %v", callers, cost, used, most)
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// TestReadersShareOneSandboxsEffort: many readers of a sandbox get no more than
// one does.
func TestReadersShareOneSandboxsEffort(t *testing.T) {
	c := &clock{at: time.Unix(1, 0)}
	rests := 0
	e := NewEffortAt(c.now, func(time.Duration, <-chan struct{}) { rests++ })
	for range int(EffortBurst/CostRead) + 8 {
		e.Pace(CostRead)
	}
	if rests < 7 {
		t.Errorf("%d of the 8 items beyond the burst rested, want all but one", rests)
	}
}

// TestAnHonestProgramDoesNotRest: a few thousand lines one by one. Whole pieces
// cost nothing.
func TestAnHonestProgramDoesNotRest(t *testing.T) {
	c := &clock{at: time.Unix(1, 0)}
	e := NewEffortAt(c.now, c.sleep)
	for range 3000 {
		e.Pace(CostPiece)
	}
	if c.rested != 0 {
		t.Errorf("rested %v, want none", c.rested)
	}
}

// TestFreeEndsARest: what rests goes on at once, and does not rest until done.
func TestFreeEndsARest(t *testing.T) {
	asleep := make(chan struct{}, 1)
	c := &clock{at: time.Unix(1, 0)}
	e := NewEffortAt(c.now, func(_ time.Duration, wake <-chan struct{}) {
		asleep <- struct{}{}
		<-wake
	})
	over := make(chan struct{})
	go func() {
		defer close(over)
		e.Pace(time.Second)
	}()
	<-asleep
	done := e.Free()
	<-over
	e.Pace(time.Hour)
	if len(asleep) != 0 {
		t.Error("a free reader: got a rest, want none")
	}
	done()
	done()
	go e.Pace(time.Second)
	<-asleep
	e.Free()
}

func TestANilEffortBoundsNothing(*testing.T) {
	var e *Effort
	e.Pace(time.Hour)
	e.Free()()
}
