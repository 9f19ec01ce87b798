package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// warming is a backend that is told of the first request ahead.
type warming struct {
	*fake

	expected atomic.Int32
}

func (*warming) Prepare(context.Context)            {}
func (*warming) Warm(context.Context, backend.Spec) {}

func (w *warming) Expect(context.Context, backend.Spec, backend.Process) <-chan struct{} {
	w.expected.Add(1)
	none := make(chan struct{})
	close(none)
	return none
}

// TestStateIsNeverShown: an interpreter that needs a directory which holds the state directory
// is refused, and no sandbox is built for it.
func TestStateIsNeverShown(t *testing.T) {
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "bash"), []byte("\x7fELF not really"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		state string
		want  sandboxmcp.Code
	}{
		"Below":  {filepath.Join(tools, "deep", "state"), sandboxmcp.CodeIsolationUnavailable},
		"Beside": {tools + "-state", ""}, // the same letters are not the same directory
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { _ = os.RemoveAll(c.state) })
			f := &fake{search: tools}
			told, first := &warming{fake: f}, shell("x")
			e := open(t, f, at(c.state), func(c *engine.Config) { c.Backends, c.First = []backend.Backend{told}, &first })
			_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("x"))
			if c.want == "" {
				if err != nil || told.expected.Load() != 1 {
					t.Fatalf("Execute: got %v, and %d requests that the backend was told of ahead; want a result and 1", err, told.expected.Load())
				}
				return
			}
			if bad := asCode(t, err, c.want); !strings.Contains(bad.Message, tools) || bad.Hint == "" {
				t.Errorf("got message %q and hint %q, want the directory and what to do", bad.Message, bad.Hint)
			}
			if n, _ := f.starts(); n != 0 || len(f.seen()) != 0 {
				t.Errorf("got %d programs started, calls of the backend %v; want none", n, f.seen())
			}
			if err := e.Close(); err != nil || told.expected.Load() != 0 { // Close waits for the preparation
				t.Errorf("Close: got %v, and %d requests that the backend was told of ahead; want none", err, told.expected.Load())
			}
		})
	}
}
