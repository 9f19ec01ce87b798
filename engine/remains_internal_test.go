package engine

import (
	"errors"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
)

// Failed background runs are kept for look-ups, many of them, and their callers chose how
// large their programs and inputs are.
func TestAFailedBackgroundRunKeepsNeitherItsInputNorItsSecrets(t *testing.T) {
	x := &execution{
		order: order{
			who: sandboxmcp.Caller{Namespace: "n"}, background: true,
			req: sandboxmcp.Request{ID: "r1", Code: "code", Stdin: []byte("input"), Env: map[string]string{"TOKEN": "value"}},
		},
		done: make(chan struct{}), cancel: func(error) {}, err: errors.New("denied"),
		secrets: guard.New(guard.Config{}).NewRun(guard.Request{}),
	}
	e := &Engine{ended: []*execution{x.remains()}}
	got := e.find("n", "r1")
	if got == nil || got.err == nil || got.done != x.done {
		t.Fatalf("a look-up finds %+v", got)
	}
	if got.req.Code != "" || got.req.Stdin != nil || got.req.Env != nil || got.secrets != nil {
		t.Errorf("%+v and %+v are kept, want the id alone", got.req, got.secrets)
	}
	got.cancel(nil) // as a look-up does that cancels
	if e.find("other", "r1") != nil {
		t.Error("find from another namespace: got the run, want nil")
	}
}
