package backendtest

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/probe"
)

// probes runs the attempts of "doctor --attack" that need no limits. Each must be refused.
func (s *suite) probes(t *testing.T) {
	if reason := s.o.Lacks["probes"]; reason != "" {
		t.Skip(reason)
	}
	site, err := probe.NewSite(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer site.Close()
	x := s.open(t)
	s.interlock(t, x)
	if s.net {
		x.network(t)
	}
	p := probe.Programs()[0]
	req := p.Request(site)
	program := x.python(t, req.Code)
	program.Stdin = req.Stdin
	e := x.run(t, program)
	for _, f := range p.Judge(site, sandboxmcp.Result{Stdout: e.Out, Stderr: e.Err, Status: sandboxmcp.StatusCompleted}) {
		if !f.Held {
			t.Errorf("%s: it tried %s: %s", f.Name, f.Tried, f.Observed)
		}
	}
}
