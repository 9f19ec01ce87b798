package engine_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// TestDoctorTellsWhatIsAhead: what doctor says of interpreters that are ready is
// what an engine does on this machine.
func TestDoctorTellsWhatIsAhead(t *testing.T) {
	needs(t, openReal(t), sandboxmcp.Languages()...)
	told := func(env ...string) map[string]sandboxmcp.Check {
		t.Helper()
		env = append(env, "PATH="+systemPath, "HOME="+t.TempDir(), "TMPDIR="+t.TempDir(), "SANDBOXMCP_STATE_DIR="+filepath.Join(t.TempDir(), "state"))
		c, err := config.Load(config.Sources{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		checks := map[string]sandboxmcp.Check{}
		for _, k := range engine.Doctor(context.WithoutCancel(t.Context()), engine.Options{Config: c, Env: env}) {
			if checks[k.Name] = k; k.Name == "clean end" {
				t.Errorf("after the trial: got %s left, want nothing", k.Detail)
			}
		}
		return checks
	}
	here, off := told(), told("SANDBOXMCP_SANDBOX_POOL=false")
	for _, l := range sandboxmcp.Languages() {
		var b backend.Backend
		e := openReal(t, func(c *engine.Config) { b = c.Backends[0] })
		c := here[string(l)+" ahead"]
		if got := warm(t, e, b, l); c.OK != got || c.Needed || c.Detail == "" {
			t.Errorf("%s: doctor says %+v, and what is ready is %v", l, c, got)
		}
		if c := off[string(l)+" ahead"]; c.OK || c.Needed || !strings.Contains(c.Detail, "turned off") || c.Fix == "" {
			t.Errorf("%s, turned off: got %+v, want it said, with a fix, and not needed", l, c)
		}
	}
	if !slices.ContainsFunc(sandboxmcp.Languages(), func(l sandboxmcp.Language) bool { return here[string(l)].OK }) {
		t.Error("interpreters: got none, want one to compare")
	}
}
