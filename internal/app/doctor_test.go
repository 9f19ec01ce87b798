package app_test

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// options returns the default settings with a state directory of their own, and with env.
func options(t *testing.T, env ...string) app.Options {
	t.Helper()
	env = append(env, "PATH=/usr/local/bin:/usr/bin:/bin", "HOME="+t.TempDir(), "TMPDIR="+t.TempDir(), "SANDBOXMCP_STATE_DIR="+filepath.Join(t.TempDir(), "state"))
	c, err := config.Load(config.Sources{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	return app.Options{Config: c, Options: engine.Options{Settings: engine.Settings{Env: env}, Env: env}}
}

// openEngine opens an engine with a real backend, which is not the one of doctor.
func openEngine(t *testing.T) (*engine.Engine, backend.Backend) {
	t.Helper()
	o := options(t)
	b, err := engine.ProcessBackend(o.Options)
	if err != nil {
		t.Fatal(err)
	}
	if c := b.Capabilities(t.Context()); !c.Available {
		_ = b.Close(t.Context())
		testkit.Sandbox(t, false, c.Reason)
	}
	e, err := engine.New(t.Context(), engine.Config{StateDir: o.Config.StateDir, Backends: []backend.Backend{b}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e, b
}

// ahead runs programs until the backend has an interpreter of the language ready, and
// reports whether it has.
func ahead(t *testing.T, e *engine.Engine, b backend.Backend, l sandboxmcp.Language) bool {
	t.Helper()
	pool := b.(backend.Pooler)
	code, ready := "1", "processes_ahead"
	if l == sandboxmcp.Python {
		code, ready = "import time; time.sleep(.05)", "zygotes"
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		for range 2 { // what is asked for again is made ready
			if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: code, Language: l}); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			if pool.Pool()[ready] > 0 {
				return true
			}
			time.Sleep(2 * time.Millisecond)
		}
		_ = pool.Trim(t.Context())
	}
	return false
}

// TestDoctorTellsWhatIsAhead: what doctor says of interpreters that are ready is
// what an engine does on this machine.
func TestDoctorTellsWhatIsAhead(t *testing.T) {
	first, _ := openEngine(t)
	all, err := first.Runtimes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all.Runtimes {
		word := map[sandboxmcp.Language]string{"python": "python", "node": "node", "shell": "bash"}[r.Language]
		testkit.Need(t, word, r.Available, r.Hint)
	}
	told := func(env ...string) map[string]sandboxmcp.Check {
		t.Helper()
		checks := map[string]sandboxmcp.Check{}
		o := options(t, env...)
		for _, k := range app.New(o.Env, nil, io.Discard, io.Discard).Diagnose(context.WithoutCancel(t.Context()), o) {
			if checks[k.Name] = k; k.Name == "clean end" {
				t.Errorf("something of the trial is left: %s", k.Detail)
			}
		}
		return checks
	}
	here, off := told(), told("SANDBOXMCP_SANDBOX_POOL=false")
	for _, l := range sandboxmcp.Languages() {
		e, b := openEngine(t)
		c := here[string(l)+" ahead"]
		if got := ahead(t, e, b, l); c.OK != got || c.Needed || c.Detail == "" {
			t.Errorf("%s: doctor says %+v, and what is ready is %v", l, c, got)
		}
		if c := off[string(l)+" ahead"]; c.OK || c.Needed || !strings.Contains(c.Detail, "turned off") || c.Fix == "" {
			t.Errorf("%s, turned off: doctor says %+v", l, c)
		}
	}
	if !slices.ContainsFunc(sandboxmcp.Languages(), func(l sandboxmcp.Language) bool { return here[string(l)].OK }) {
		t.Error("doctor knows no interpreter: nothing was compared")
	}
}
