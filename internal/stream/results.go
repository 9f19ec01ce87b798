package stream

import (
	"context"
	"maps"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Results passes the rich results of a program to a writer while the program runs. Its
// memory is bounded by the limit of a driver's frames. A nil Results passes nothing. Its
// methods may be called concurrently.
type Results struct {
	to   sandboxmcp.ResultWriter
	mask func(sandboxmcp.RichResult) sandboxmcp.RichResult
	pump pump

	mu     sync.Mutex
	list   []sandboxmcp.RichResult // not passed on yet
	closed bool
}

// NewResults returns a Results that passes on to a writer, or nil if to is nil. mask
// replaces secrets in a result and returns it. The caller calls Close.
func NewResults(to sandboxmcp.ResultWriter, mask func(sandboxmcp.RichResult) sandboxmcp.RichResult) *Results {
	if to == nil {
		return nil
	}
	r := &Results{to: to, mask: mask, pump: newPump()}
	go r.pump.run(r.pass)
	return r
}

// Add passes on a copy of a result, because the writer may still read it while the caller
// changes the original.
func (r *Results) Add(result sandboxmcp.RichResult) {
	if r == nil {
		return
	}
	result = r.mask(maps.Clone(result))
	r.mu.Lock()
	if !r.closed {
		r.list = append(r.list, result)
	}
	r.mu.Unlock()
	r.pump.nudge()
}

// Close ends the stream. Later results are ignored.
func (r *Results) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.pump.nudge()
}

func (r *Results) pass() (over bool) {
	r.mu.Lock()
	list, closed := r.list, r.closed
	r.list = nil
	r.mu.Unlock()
	for _, result := range list {
		r.to.WriteResult(result)
	}
	return closed
}

// Flush waits until the writer has received everything, or ctx ends. Call it after Close.
func (r *Results) Flush(ctx context.Context) {
	if r != nil {
		r.pump.flush(ctx)
	}
}
