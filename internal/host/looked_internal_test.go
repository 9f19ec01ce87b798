package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestLooksThatDoNotEnd: a call ends with its time while the kernel keeps its look waiting. Once such looks have all places, further calls end with their
// time as well, and go on when a place is free again.
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

// TestFilesAreReadAndWrittenWithinTheTime: a file system can also keep the read of an open file waiting, or the making of a new one. A file tool that has failed
// writes nothing afterwards.
func TestFilesAreReadAndWrittenWithinTheTime(t *testing.T) {
	dir := t.TempDir()
	for _, overwrite := range []bool{true, false} {
		over := errors.New("over")
		if err := put(place{newTree(dir), "f"}, func() error { return over }, written{filepath.Join(dir, "f"), []byte("x"), overwrite}); !errors.Is(err, over) {
			t.Errorf("got %v, want %v", err, over)
		}
		if there, err := os.ReadDir(dir); err != nil || len(there) > 0 {
			t.Errorf("got %v, %v, want nothing in the directory", there, err)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(w.Close(), r.Close()) }()
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
	if _, err = readPart(ctx, r, 0, 1); sandboxmcp.AsError(err).Code != sandboxmcp.CodeCancelled || !errors.Is(readError("f", err), err) {
		t.Errorf("a read: got %v, want that it is cancelled", err)
	}
	if got := warningsOf(ctx, make([]sandboxmcp.Approval, 1)); len(got) != 1 || got[0] == "" {
		t.Errorf("a question: got %q, want a warning", got)
	}
}
