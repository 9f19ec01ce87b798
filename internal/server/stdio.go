package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Time limits at the end of a connection.
const (
	answerGrace = 500 * time.Millisecond  // time after the end of input for calls that are almost done
	endGrace    = 1500 * time.Millisecond // time for cancelled calls to return
)

// rootKey is the context key of a connection's own context, for the calls on it.
type rootKey struct{}

// ServeStdio serves a client that writes to in and reads from out, one JSON-RPC message per
// line. It returns within 3 s after end of file on in, after ctx ends, or after a failed
// write to out; only the last is returned as an error. By then running calls are cancelled.
// Background runs continue until Engine.Close. It does not close in: a blocked read stays
// blocked.
func (s *Server) ServeStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	root, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	in, unread := polled(in)
	defer unread()
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
		_ = session.Wait() // the error of the connection is more precise
	}()
	select {
	case <-ended:
	case <-root.Done():
		s.await(ended, endGrace)
	case <-c.drained: // a client that takes no answers would delay the end for ever
		s.await(ended, answerGrace+endGrace)
	}
	if broken := (*writeError)(nil); errors.As(context.Cause(root), &broken) {
		return broken
	}
	return nil
}

// await waits until ended is closed, for at most that long.
func (s *Server) await(ended <-chan struct{}, most time.Duration) {
	t := time.NewTimer(most)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
		s.log.Warn("calls did not come back after they were cancelled, or the client takes no answers")
	}
}

// transport passes an existing connection to the SDK.
type transport struct{ c *conn }

func (t transport) Connect(context.Context) (mcp.Connection, error) { return t.c, nil }

// writeError means that a write to the client has failed.
type writeError struct{ err error }

func (e *writeError) Error() string { return "write to client: " + e.err.Error() }
func (e *writeError) Unwrap() error { return e.err }

// withRoot returns a context that ends with ctx or with the connection. The caller calls the
// function to release it.
func withRoot(ctx context.Context) (context.Context, context.CancelFunc) {
	root, ok := ctx.Value(rootKey{}).(context.Context)
	ctx, cancel := context.WithCancel(ctx)
	if !ok {
		return ctx, cancel
	}
	unhook := context.AfterFunc(root, cancel)
	return ctx, func() { unhook(); cancel() }
}
