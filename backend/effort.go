package backend

import (
	"sync"
	"time"
)

// Effort bounds the server's own processor time that one sandbox can cause: by its output, by its
// processes that end, by its DNS questions and connections. Each item has a cost, an estimate of
// the server's time for it. A sandbox may cause [EffortShare] of a core, and [EffortBurst] at once.
// The code that handles an item calls Pace after it. If the sandbox is ahead of its share, Pace
// sleeps. What the sandbox sends meanwhile waits in the kernel or is refused there.
//
// Package guard bounds with it also what the changed secrets of a namespace cost.
//
// A nil Effort bounds nothing. Its methods may be called concurrently.
type Effort struct {
	now   func() time.Time
	sleep func(time.Duration, <-chan struct{})
	burst time.Duration

	mu   sync.Mutex
	have time.Duration // the server's time that is left; below 0 the sandbox is ahead of its share
	at   time.Time     // when have was brought up to date
	free int           // number of Free calls whose done was not called yet
	wake chan struct{} // closed when Free is called
}

// The share of one sandbox, and the parameters of the rests that enforce it.
const (
	EffortShare = 0.1                    // of one core
	EffortBurst = 200 * time.Millisecond // server time that a sandbox may cause at once
	effortBatch = 100 * time.Microsecond // added to each rest, so that the next items need none
	effortWake  = 80 * time.Microsecond  // cost of a rest: a timer and the goroutine that it wakes
	effortRest  = 5 * time.Second        // the longest rest; many concurrent callers may need as much
)

// Costs of items, measured on a slow core.
const (
	CostPiece      = 60 * time.Microsecond  // a piece of a stream with fewer than [WholePiece] bytes
	CostRead       = 20 * time.Microsecond  // a read of a channel, without its bytes
	CostLateRead   = 500 * time.Microsecond // a further read of a head that comes in many pieces; in it, the kernel also sends what waits at the program
	CostExit       = 30 * time.Microsecond  // the end of a process that the server did not start itself
	CostQuestion   = 60 * time.Microsecond  // a DNS question
	CostConnection = 500 * time.Microsecond // a connection that is served, including its decision and its answer
	CostRefusal    = 300 * time.Microsecond // a connection that is refused
	CostAnswerByte = 800 * time.Nanosecond  // a byte of a DNS answer that the server gets when it connects to a host
	CostHeadByte   = 50 * time.Nanosecond   // a further byte of a long head of an HTTP request or answer, or of a long ClientHello
	costFrameByte  = 20                     // a byte that is decoded; nanoseconds
)

// WholePiece is the size from which a piece of a stream costs nothing. The output limit bounds the
// number of such pieces.
const WholePiece = 4 << 10

// CostOf returns the cost of a read of n bytes that are decoded.
func CostOf(n int) time.Duration { return CostRead + time.Duration(n)*costFrameByte }

// A system call on a pipe takes microseconds. Programs can make it slow: if they watch the pipe
// many times, the call wakes all watchers before it returns.
const (
	usualCall = 100 * time.Microsecond
	mostCall  = 50 * time.Millisecond // what a call costs at the most
)

// CostOfCall returns the extra cost of a system call that does not block and that took the given
// time.
func CostOfCall(took time.Duration) time.Duration {
	if took < usualCall {
		return 0
	}
	return min(took, mostCall)
}

// NewEffort returns an Effort with its full burst.
func NewEffort() *Effort { return NewEffortOf(EffortBurst) }

// NewEffortOf is NewEffort with another burst.
func NewEffortOf(burst time.Duration) *Effort {
	e := NewEffortAt(time.Now, func(d time.Duration, wake <-chan struct{}) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-wake:
		}
	})
	e.burst, e.have = burst, burst
	return e
}

// NewEffortAt is NewEffort with another clock. sleep must return when the time has passed or the
// channel is closed.
func NewEffortAt(now func() time.Time, sleep func(time.Duration, <-chan struct{})) *Effort {
	return &Effort{now: now, sleep: sleep, burst: EffortBurst, have: EffortBurst, at: now(), wake: make(chan struct{})}
}

// Pace takes cost from the sandbox's share. If nothing of the share is left, it sleeps until there
// is, or until Free is called.
func (e *Effort) Pace(cost time.Duration) {
	if rest := e.Spend(cost); rest > 0 {
		e.Rest(rest)
	}
}

// Spend takes cost from the sandbox's share. It returns how long the caller must rest before its
// next item, or 0 while some of the share is left.
func (e *Effort) Spend(cost time.Duration) time.Duration {
	if e == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	e.have = min(e.have+time.Duration(EffortShare*float64(now.Sub(e.at))), e.burst) - cost
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

// Free suspends the bound until done is called. The server uses it while it ends a sandbox, so that
// the last output is read at full speed. done may be called more than once.
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
