package server

import (
	"context"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
)

// Bounds of the memory that all calls hold together. A client may send calls faster than
// they are answered, and a small call may have a large answer.
const (
	maxCalls       = 4096        // calls in progress; one caller alone has at most half of them
	smallArguments = 64 << 10    // bytes; smaller arguments are not counted
	maxArguments   = 2 * maxLine // bytes of the arguments of all calls in progress
	maxLarge       = 4           // answers with a whole stream or file that are being made or sent
)

// load counts what the calls in progress hold in memory.
type load struct {
	large chan struct{} // has an element for each large answer

	mu    sync.Mutex
	calls int
	each  map[string]int // calls of each caller that has some
	bytes int64          // bytes of all counted arguments
}

func newLoad() *load { return &load{large: make(chan struct{}, maxLarge), each: map[string]int{}} }

// enter registers a call with so many bytes of arguments. If the calls in progress hold too
// much, it fails with queue_full. It also fails if the caller has as many calls as there is room
// for: calls of older versions go on without a connection, and one caller must not take all of
// the room. Calls with small arguments still pass, so that a client can cancel. A call with a
// large answer waits until fewer than maxLarge are in progress, or until ctx ends. The caller
// of enter passes leave to answered.
func (l *load) enter(ctx context.Context, caller string, arguments int, large bool) (leave func(), err error) {
	counted := int64(arguments)
	if arguments <= smallArguments {
		counted = 0
	}
	if err := l.count(caller, counted); err != nil {
		return nil, err
	}
	if !large {
		return func() { l.uncount(caller, counted) }, nil
	}
	select {
	case l.large <- struct{}{}:
		return func() { <-l.large; l.uncount(caller, counted) }, nil
	case <-ctx.Done():
		l.uncount(caller, counted)
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the call was cancelled").WithCause(context.Cause(ctx))
	}
}

func (l *load) count(caller string, bytes int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.calls >= maxCalls:
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "%d calls are not answered yet", l.calls).
			WithHint("wait for some of the answers").With("limit", maxCalls).With("retry_after_seconds", 2)
	case l.each[caller] >= maxCalls-l.calls:
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "%d calls of this caller are not answered yet", l.each[caller]).
			WithHint("wait for some of the answers").With("limit", l.each[caller]).With("retry_after_seconds", 2)
	case l.bytes > 0 && bytes > 0 && l.bytes+bytes > maxArguments:
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "calls with %d MiB of arguments are not answered yet; with the %d MiB of this one they would have more than %d MiB", l.bytes>>20, bytes>>20, maxArguments>>20).
			WithHint("send large arguments one after the other").With("retry_after_seconds", 2)
	}
	l.calls++
	l.each[caller]++
	l.bytes += bytes
	return nil
}

func (l *load) uncount(caller string, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls--
	if l.each[caller]--; l.each[caller] == 0 {
		delete(l.each, caller)
	}
	l.bytes -= bytes
}

// answered runs leave once the answer of a call was sent, because then the SDK ends the
// context of the call. Handlers call it only when they return, because a client may end the
// context earlier.
func answered(ctx context.Context, leave func()) { context.AfterFunc(ctx, leave) }
