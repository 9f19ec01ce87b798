package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

func TestServerListAndStop(t *testing.T) {
	state := t.TempDir()
	env := []string{"SANDBOXMCP_STATE_DIR=" + state}
	background, agent := &fake{}, &fake{}
	background.listen(t, state, true)
	agent.listen(t, state, false)
	list := func() []app.BackgroundServer {
		t.Helper()
		got := (&fake{}).cli(t.Context(), t, env, "server", "list", "--json")
		if got.status != 0 {
			t.Fatalf("list: got %+v, want 0", got)
		}
		return parsed[struct{ Servers []app.BackgroundServer }](t, got.stdout).Servers
	}
	if all := list(); len(all) != 1 || all[0].ID != background.id || all[0].PID != os.Getpid() {
		t.Errorf("got %+v, want only the server in the background %s", all, background.id)
	}
	if got := (&fake{}).cli(t.Context(), t, env, "server", "list"); !strings.Contains(got.stdout, background.id) || strings.Contains(got.stdout, agent.id) {
		t.Errorf("got %q, want %s and not %s", got.stdout, background.id, agent.id)
	}
	if got := (&fake{}).cli(t.Context(), t, env, "server", "stop", "nobody"); got.status != 5 || !strings.Contains(got.stderr, "sandboxmcp server list") {
		t.Errorf("stop of none: got %+v, want not_found and where the ids are", got)
	}
	if got := (&fake{}).cli(t.Context(), t, env, "server", "stop", agent.id); got.status != 3 || !strings.Contains(got.stderr, "serves an agent") {
		t.Errorf("stop of an agent's server: got %+v, want access_denied", got)
	}
	if got := (&fake{}).cli(t.Context(), t, env, "server", "stop", background.id); got.status != 0 || got.stdout != "stopped "+background.id+"\n" {
		t.Errorf("stop: got %+v, want 0", got)
	}
	if all := list(); len(all) != 0 {
		t.Errorf("got %+v afterwards, want none", all)
	}
}
