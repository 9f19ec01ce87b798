package api

import (
	"context"
	"io"
	"testing"
	"testing/synctest"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestNoWriteBeginsAfterAnInterruptedCall: a caller that was interrupted may use its writer for something
// else when the call has returned, so what is left of the output is dropped.
func TestNoWriteBeginsAfterAnInterruptedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &blocked{until: make(chan struct{})}
		req := sandboxmcp.Request{Stdout: w, Stderr: io.Discard}
		drain := relayed(&req)
		for range 3 {
			_, _ = io.WriteString(req.Stdout, "x")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		drain(ctx)
		close(w.until)
		synctest.Wait()
		if w.begun != 1 {
			t.Errorf("got %d writes, want the one that had begun", w.begun)
		}
	})
}

// TestAnInterruptedCallKeepsItsOutput: a writer that does not wait gets all output that has come.
func TestAnInterruptedCallKeepsItsOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &blocked{until: make(chan struct{})}
		close(w.until)
		req := sandboxmcp.Request{Stdout: w}
		drain := relayed(&req)
		for range 3 {
			_, _ = io.WriteString(req.Stdout, "x")
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		drain(ctx)
		if w.begun != 3 {
			t.Errorf("got %d writes, want 3", w.begun)
		}
	})
}

// blocked is a writer that waits before it takes anything.
type blocked struct {
	until chan struct{}
	begun int
}

func (w *blocked) Write(p []byte) (int, error) {
	w.begun++
	<-w.until
	return len(p), nil
}
