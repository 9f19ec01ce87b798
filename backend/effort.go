package backend

import (
	"sync"
	"time"
)

// Effort bounds the server's own processor time that one sandbox can cause: by
// what it writes, by its processes that end, by its questions and connections.
// Each item has a cost, an estimate of the server's time for it. A sandbox has
// [EffortShare] of a core, and may use up [EffortBurst] at once. Whoever handles
// items calls Pace after each; while the sandbox is ahead of its share, Pace
// rests, and what the sandbox sends meanwhile waits in the kernel or is refused
// there. Nothing is lost by a rest.
//
// A nil Effort bounds nothing. Its methods may be called concurrently.
type Effort struct {
	now   func() time.Time
	sleep func(time.Duration, <-chan struct{})

	mu   sync.Mutex
	have time.Duration // of the server's time; below 0 the sandbox is ahead of its share
	at   time.Time     // when have was brought up to date
	free int           // callers of Free that have not ended it
	wake chan struct{} // closed when Free is called
}

// What one sandbox may take of the server's time.
const (
	EffortShare = 0.1                    // of a core of the server's
	EffortBurst = 200 * time.Millisecond // of the server's time
	effortBatch = 100 * time.Microsecond // what is gathered in a rest, besides the cost of the rest itself
	effortWake  = 80 * time.Microsecond  // cost of a rest: of a timer and of the goroutine that it wakes
	effortRest  = 100 * time.Millisecond // no rest is longer, so that every reader looks up again soon
)

// Costs of items, as measured on a slow core.
const (
	CostPiece      = 60 * time.Microsecond  // of a stream, that is less than [WholePiece]
	CostRead       = 20 * time.Microsecond  // of a channel, however few bytes it brings
	CostExit       = 30 * time.Microsecond  // of a process of which only init has to tell
	CostQuestion   = 60 * time.Microsecond  // of DNS
	CostConnection = 500 * time.Microsecond // that is served, its decision and its answer included
	CostRefusal    = 300 * time.Microsecond // of a connection
	costFrameByte  = 5                      // nanoseconds of a byte that is decoded
)

// WholePiece is how many bytes of a stream are read for nothing: how many of
// those a program may write is bounded by its limit on output.
const WholePiece = 4 << 10

// CostOf returns the cost of a read of n bytes that are decoded.
func CostOf(n int) time.Duration { return CostRead + time.Duration(n)*costFrameByte }

// NewEffort returns an Effort with its whole burst.
func NewEffort() *Effort {
	return NewEffortAt(time.Now, func(d time.Duration, wake <-chan struct{}) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-wake:
		}
	})
}

// NewEffortAt is NewEffort with another clock, and with what rests until a time
// has passed or the channel is closed.
func NewEffortAt(now func() time.Time, sleep func(time.Duration, <-chan struct{})) *Effort {
	return &Effort{now: now, sleep: sleep, have: EffortBurst, at: now(), wake: make(chan struct{})}
}

// Pace takes cost from the sandbox's share and rests while nothing of it is
// left. A rest takes at most a tenth of a second, and ends when Free is called.
func (e *Effort) Pace(cost time.Duration) {
	if rest := e.Spend(cost); rest > 0 {
		e.Rest(rest)
	}
}

// Spend takes cost from the sandbox's share. It returns how long the caller has
// to rest before its next item; mostly 0.
func (e *Effort) Spend(cost time.Duration) time.Duration {
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	e.have = min(e.have+time.Duration(EffortShare*float64(now.Sub(e.at))), EffortBurst) - cost
	e.at = now
	if e.free > 0 {
		e.have = max(e.have, 0)
	}
	if e.have >= 0 {
		return 0
	}
	e.have -= effortWake
	return min(time.Duration(float64(effortBatch-e.have)/EffortShare), effortRest)
}

// Rest waits until the time has passed or Free is called.
func (e *Effort) Rest(d time.Duration) {
	if e == nil {
		return
	}
	e.mu.Lock()
	wake, free := e.wake, e.free > 0
	e.mu.Unlock()
	if !free {
		e.sleep(d, wake)
	}
}

// Free suspends the bound until done is called: while the sandbox is being
// ended, what is left of it is read at full speed, and there is little of it.
// done may be called more than once.
func (e *Effort) Free() (done func()) {
	if e == nil {
		return func() {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.free++
	close(e.wake)
	e.wake = make(chan struct{})
	return sync.OnceFunc(func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.free--
	})
}
