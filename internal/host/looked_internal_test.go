package host

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestLooksThatDoNotEnd: a call ends with its time although its look waits in the kernel. Once such looks have all places, further calls end with their
// time as well. Calls work again when a place is free.
func TestLooksThatDoNotEnd(t *testing.T) {
	answers := make(chan struct{})
	for i := range mostLooks + 1 {
		ctx, cancel := context.WithCancel(t.Context())
		if i == mostLooks { // it gets no place
			cancel()
		}
		got, err := looked(ctx, time.Hour, func(context.Context) (string, error) {
			cancel()
			<-answers
			return "late", nil
		})
		if sandboxmcp.AsError(err).Code != sandboxmcp.CodeCancelled || got != "" {
			t.Errorf("call %d: got %q, %v, want that it is cancelled", i, got, err)
		}
	}
	if _, err := looked(t.Context(), time.Nanosecond, func(context.Context) (int, error) { return 0, nil }); sandboxmcp.AsError(err).Code != sandboxmcp.CodeExecutionFailed {
		t.Errorf("a call without a place: got %v, want execution_failed", err)
	}
	close(answers)
	if got, err := looked(t.Context(), time.Minute, func(context.Context) (string, error) { return "now", nil }); err != nil || got != "now" {
		t.Errorf("a call after these: got %q, %v, want now", got, err)
	}
}

// TestQuestionsAreShownWithoutALook: a person sees the questions even if the look at their programs waits in the kernel.
func TestQuestionsAreShownWithoutALook(t *testing.T) {
	for range mostLooks { // looks that do not end
		looks <- struct{}{}
	}
	defer func() {
		for range mostLooks {
			<-looks
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := warningsOf(ctx, make([]sandboxmcp.Approval, 2)); len(got) != 2 || got[0] == "" || got[1] == "" {
		t.Errorf("got %q, want a warning for each", got)
	}
}

// TestACallThatHasGoneReadsNoMore: otherwise a client that cancels its calls could make a slow disk fill the server's memory with the files of more calls than are
// served at once.
func TestACallThatHasGoneReadsNoMore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err := io.ReadAll(wanted(ctx, readFunc(func(b []byte) (int, error) {
		if n++; n == 2 {
			cancel()
		}
		if n > 3 {
			return 0, io.EOF
		}
		return len(b), nil
	})))
	if n != 2 || sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("got %v after %d reads, want the end after the second", err, n)
	}
	dir := t.TempDir()
	err = put(ctx, place{newTree(dir), "new"}, "new", strings.NewReader("x"), true)
	if left, failed := os.ReadDir(dir); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled || failed != nil || len(left) != 0 {
		t.Errorf("write: got %v and %v, want an error and no file", err, left)
	}
}
