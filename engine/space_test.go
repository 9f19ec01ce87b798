package engine_test

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// If the disk of the state directory is nearly full, no run begins: neither in the foreground,
// nor in the background, nor in a session, nor one that waited meanwhile.
func TestRunsAreRefusedWhenTheDiskIsNearlyFull(t *testing.T) {
	var free atomic.Uint64
	free.Store(1 << 30)
	var moved atomic.Int64
	dir := filepath.Join(t.TempDir(), "state")
	hold := make(chan struct{})
	f := &fake{program: func(*fakeRun) backend.Exit { <-hold; return backend.Exit{} }}
	e := open(t, f, at(dir), func(c *engine.Config) {
		c.MaxConcurrent = 1
		c.FreeSpace = func(string) (uint64, uint64, error) { return free.Load(), 2 << 30, nil }
		c.Now = func() time.Time { return time.Now().Add(time.Duration(moved.Load())) }
	})
	first := executeIn(t.Context(), t, e, shell("x"))
	eventually(t, "the first program runs", func() bool { n, _ := f.starts(); return n == 1 })
	second := executeIn(t.Context(), t, e, shell("x"))
	eventually(t, "the second one waits", func() bool { return stats(e).Queue.Queued == 1 })
	free.Store(100 << 20)
	moved.Store(int64(2 * time.Second))
	close(hold)
	if res, err := first(); err != nil || !res.Success {
		t.Errorf("got %v and %v for the run that was going, want a success", res.Status, err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable || !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got %v, want backend_unavailable that names %s", what, err, dir)
		}
	}
	_, err := second()
	refused("waited", err)
	_, err = e.Execute(t.Context(), sandboxmcp.Caller{}, shell("x"))
	refused("foreground", err)
	_, err = e.Start(t.Context(), sandboxmcp.Caller{}, shell("x"))
	refused("background", err)
	req := shell("x")
	req.SessionID = "s"
	_, err = e.Execute(t.Context(), sandboxmcp.Caller{}, req)
	refused("session", err)
	if err = e.Answers(t.Context()); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable || strings.Contains(sandboxmcp.AsError(err).Message, dir) {
		t.Errorf("readiness: got %v, want backend_unavailable that names no path", err)
	}
	if started, _ := f.starts(); started != 1 {
		t.Errorf("got %d programs started, want 1", started)
	}
}
