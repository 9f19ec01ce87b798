package engine_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// added is a backend of another module.
type added struct {
	backend.Backend

	closed int
}

func (*added) Name() string { return "kube" }

func (a *added) Close(context.Context) error {
	a.closed++
	return nil
}

func settings(t *testing.T, values map[string]any) engine.Settings {
	t.Helper()
	values["state_dir"] = t.TempDir()
	return engine.Settings{Values: values}
}

// TestAProgramWithoutABackendNamesTheOther: the default backend of another module is refused with the name of
// the program that has it.
func TestAProgramWithoutABackendNamesTheOther(t *testing.T) {
	_, err := engine.Open(t.Context(), engine.Options{Settings: settings(t, map[string]any{"default_backend": "kube"})})
	if e := sandboxmcp.AsError(err); err == nil || e.Code != sandboxmcp.CodeBackendUnavailable || !strings.Contains(e.Hint, "sandboxmcp-kube") {
		t.Errorf("got %v, want backend_unavailable and the name of the program", err)
	}
}

// TestBackendsOfOtherModulesAreTheEngines: the engine uses and closes them, also if it cannot be opened.
func TestBackendsOfOtherModulesAreTheEngines(t *testing.T) {
	a := &added{}
	e, err := engine.Open(t.Context(), engine.Options{Settings: settings(t, map[string]any{"default_backend": "kube"}), Backends: []backend.Backend{a}})
	if err != nil {
		t.Fatal(err)
	}
	if err = e.Close(); err != nil || a.closed == 0 {
		t.Errorf("got %v and %d closes, want one", err, a.closed)
	}
	b := &added{}
	if _, err = engine.Open(t.Context(), engine.Options{Settings: settings(t, map[string]any{"no_such_key": "x"}), Backends: []backend.Backend{b}}); err == nil || b.closed == 0 {
		t.Errorf("got %v and %d closes, want an error and one", err, b.closed)
	}
}
