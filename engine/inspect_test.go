package engine_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestInspectTellsTheEnvironment: Inspect describes the environment that programs find, for a
// namespace and for a session.
func TestInspectTellsTheEnvironment(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Shell)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
	for _, of := range []sandboxmcp.SessionID{"", id} {
		st, err := e.Inspect(t.Context(), sandboxmcp.Caller{}, of)
		if err != nil || len(st.Env) < 5 || st.Env["HOME"] != "/tmp" || st.Env["SANDBOX_OUTPUT_DIR"] != "/mnt/data" {
			t.Fatalf("of %q: got %v, %v", of, st.Env, err)
		}
		for name, want := range st.Env {
			r := sandboxmcp.Request{SessionID: of, Code: "printf %s \"$" + name + "\"", Language: sandboxmcp.Shell}
			if got := execute(t, e, r).Stdout; got != want {
				t.Errorf("of %q, %s: the program finds %q, and told is %q", of, name, got, want)
			}
		}
	}
}
