package gateway_test

import (
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
)

// TestDomainsAreOpenToTheirBackends: a request that chooses its backend does not choose what is open. The
// settings may open domains to containers only.
func TestDomainsAreOpenToTheirBackends(t *testing.T) {
	e := open(t, []string{"api.site.test"}, func(c *gateway.Config) { c.Backends = []string{"docker"} })
	in := func(backend string) *gateway.Gateway {
		r := begin(t, e, &sandbox{}, nil, gateway.Request{ID: sandboxmcp.RequestID("of " + backend), Backend: backend})
		letOut(t, r, nil)
		return r.Gateway()
	}
	container, process := in("docker"), in("process")
	wantOpen(t, container, map[sandboxmcp.Host]bool{"api.site.test": true})
	wantOpen(t, process, map[sandboxmcp.Host]bool{"api.site.test": false})
	if _, closed := process.Closed(); !closed {
		t.Error("got an open network of the other backend, want a closed one")
	}
	_, err := e.NewRun(t.Context(), gateway.Request{Caller: caller, ID: "r", Backend: "process", Names: secrets{}, Domains: []string{"api.site.test"}})
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeEgressDenied {
		t.Errorf("allowed_domains: got %v, want egress_denied", err)
	}
	for backend, want := range map[string]bool{"docker": true, "process": false} {
		q, err := e.Question(t.Context(), caller, sandboxmcp.EgressAsk{Domain: "api.site.test"}, time.Time{}, backend)
		if err != nil || q.Answered != want {
			t.Errorf("%s: got an answer %v, %v, want %v", backend, q.Answered, err, want)
		}
		st, err := e.State(t.Context(), caller.Namespace, "", time.Time{}, backend)
		if err != nil || len(st.Allowed) > 0 != want {
			t.Errorf("%s: got %v, %v as open, want %v", backend, st.Allowed, err, want)
		}
	}

	domains := []sandboxmcp.Domain{{Host: "api.site.test"}}
	e.SetRules(gateway.Rules{Network: true, Operator: domains}) // of a run that has begun, too
	if got := process.Decide(t.Context(), egress.Ask{Host: "api.site.test", Port: 443, Via: egress.ViaTLS}); !got.Allowed {
		t.Errorf("after the settings opened it to all: got %+v, want it open", got)
	}
	e.SetRules(gateway.Rules{Network: true, Operator: domains, Backends: []string{"docker"}})
	wantOpen(t, process, map[sandboxmcp.Host]bool{"api.site.test": false})
}
