package engine_test

import (
	"context"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// fixed makes sandboxes that can show nothing more once they live, as those of tier L1.
type fixed struct{ *process.Backend }

type fixedSandbox struct{ backend.Sandbox }

func (b fixed) Open(ctx context.Context, spec backend.Spec) (backend.Sandbox, error) {
	sb, err := b.Backend.Open(ctx, spec)
	if err != nil {
		return nil, err
	}
	return fixedSandbox{sb}, nil
}

func (fixedSandbox) Attach(context.Context, backend.Tree) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "nothing can be shown in this sandbox")
}

// fixedBackend configures an engine whose sessions show nothing more once they live.
func fixedBackend(t *testing.T) func(*engine.Config) {
	t.Helper()
	return func(c *engine.Config) {
		b, ok := c.Backends[0].(*process.Backend)
		if !ok {
			t.Fatalf("got backend %T, want that of this host", c.Backends[0])
		}
		c.Backends[0] = fixed{b}
	}
}

// TestInstallIntoALiveSessionThatShowsNothingMore: it is refused, and nothing is recorded as installed. What
// is installed for the namespace is seen by new sandboxes, and by the session that lives it is not.
func TestInstallIntoALiveSessionThatShowsNothingMore(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t, fixedBackend(t))
	needs(t, e, sandboxmcp.Python)
	live := create(t, e, sandboxmcp.SessionSpec{})
	ask := python("demo==1.0")
	ask.SessionID = live
	_, err := e.Install(t.Context(), sandboxmcp.Caller{}, ask)
	asCode(t, err, sandboxmcp.CodeIsolationUnavailable)
	stdout(t, e, "None\n", sandboxmcp.Request{SessionID: live, Code: misses})
	stdout(t, e, "None\n", sandboxmcp.Request{Code: misses})
	all, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{Action: "install_package"})
	if err != nil || len(all.Entries) != 2 || *all.Entries[0].Success {
		t.Errorf("got the record %+v, %v; want one installation that failed", all, err)
	}

	install(t, e, python("demo==1.0"))
	stdout(t, e, "one\n", sandboxmcp.Request{Code: sees})
	stdout(t, e, "one\n", sandboxmcp.Request{SessionID: create(t, e, sandboxmcp.SessionSpec{}), Code: sees})
	stdout(t, e, "None\n", sandboxmcp.Request{SessionID: live, Code: misses})
}
