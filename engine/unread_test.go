package engine_test

import (
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// driver answers the first cell of a session until the sandbox ends.
func driver(r *fakeRun) backend.Exit {
	r.Frame(map[string]any{"type": "ready"})
	for {
		select {
		case <-r.Killed:
			return backend.Exit{}
		default:
			r.Frame(map[string]any{"type": "done", "id": 1, "ok": true})
		}
	}
}

// TestOutputThatCannotBeReadFailsTheRun: a run whose stream or channel ends by a read error
// fails. It has no result and no receipt.
func TestOutputThatCannotBeReadFailsTheRun(t *testing.T) {
	lost := func() error { return errors.New("waiting for unsupported file type") }
	session := sandboxmcp.Request{Code: "x", Session: &sandboxmcp.SessionSpec{Language: sandboxmcp.Python}}
	for name, c := range map[string]struct {
		f   *fake
		req sandboxmcp.Request
	}{
		"stream of a run":      {&fake{onRead: lost}, shell("true")},
		"channel of a run":     {&fake{onHear: lost}, sandboxmcp.Request{Code: "x", Language: sandboxmcp.Python}},
		"stream of a session":  {&fake{onRead: lost, program: driver}, session},
		"channel of a session": {&fake{onHear: lost, program: func(r *fakeRun) backend.Exit { r.Frame(map[string]any{"type": "ready"}); return backend.Exit{} }}, session},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			res, err := open(t, c.f, at(dir)).Execute(t.Context(), sandboxmcp.Caller{}, c.req)
			if err == nil {
				t.Fatalf("got status %s, exit code %d and stdout %q, want the error %s", res.Status, res.ExitCode, res.Stdout, sandboxmcp.CodeExecutionFailed)
			}
			if code := sandboxmcp.CodeOf(err); code != sandboxmcp.CodeExecutionFailed {
				t.Errorf("got error %s (%v), want %s", code, err, sandboxmcp.CodeExecutionFailed)
			}
			if n := count(t, database(t, dir), `SELECT count(*) FROM executions WHERE receipt IS NOT NULL`); n != 0 {
				t.Errorf("got %d receipts for it, want none", n)
			}
		})
	}
}

// TestAChannelThatNeverEndsFailsTheRun: the wait for the channel of a dead program is bounded,
// and a run that reaches the bound fails.
func TestAChannelThatNeverEndsFailsTheRun(t *testing.T) {
	t.Parallel() // it waits for the bound
	release := make(chan struct{})
	defer close(release)
	f := &fake{onHear: func() error { <-release; return io.EOF }}
	f.program = func(*fakeRun) backend.Exit { return backend.Exit{} }
	res, err := open(t, f).Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: "x", Language: sandboxmcp.Python})
	if code := sandboxmcp.CodeOf(err); err == nil || code != sandboxmcp.CodeExecutionFailed {
		t.Errorf("got status %q and error %v, want %s", res.Status, err, sandboxmcp.CodeExecutionFailed)
	}
}
