package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// How long an ending takes at most.
const (
	answerGrace = 500 * time.Millisecond  // after the end of input, for calls that are about to be answered
	endGrace    = 1500 * time.Millisecond // for cancelled calls to come back
)

// rootKey is the context key under which a call finds the context of the
// connection that it came on.
type rootKey struct{}

// ServeStdio answers the client that writes to in and reads from out, one
// JSON-RPC message a line. It returns within 3 s after the end of in, after ctx
// is cancelled, and after out broke; running calls are cancelled by then, runs
// in the background are not (Engine.Close ends them). It returns nil for the
// first two and the write error for the third. A read from in that is still
// blocked when it returns stays blocked: in is not closed.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	root, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := newConn(root, stop, in, out)
	// The SDK must not see the cancellation itself: it would wait for running
	// calls without cancelling them. The connection reports an end of input
	// instead, on which it does cancel them.
	base := context.WithValue(context.WithoutCancel(root), rootKey{}, root)
	session, err := s.mcp.Connect(base, transport{c}, nil)
	if err != nil {
		return fmt.Errorf("connect stdio: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = session.Wait() // the connection itself knows better what went wrong
	}()
	select {
	case <-ended:
	case <-root.Done():
		t := time.NewTimer(endGrace)
		defer t.Stop()
		select {
		case <-ended:
		case <-t.C:
			s.log.Warn("calls did not come back after they were cancelled")
		}
	}
	if broken := (*writeError)(nil); errors.As(context.Cause(root), &broken) {
		return broken
	}
	return nil
}

// transport hands the SDK a connection that already exists.
type transport struct{ c *conn }

func (t transport) Connect(context.Context) (mcp.Connection, error) { return t.c, nil }

// writeError tells that the client can no longer be written to.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write to client: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// withRoot returns ctx, cancelled also when the connection ends, and a function
// that frees it.
func withRoot(ctx context.Context) (context.Context, context.CancelFunc) {
	root, ok := ctx.Value(rootKey{}).(context.Context)
	ctx, cancel := context.WithCancel(ctx)
	if !ok {
		return ctx, cancel
	}
	unhook := context.AfterFunc(root, cancel)
	return ctx, func() { unhook(); cancel() }
}
