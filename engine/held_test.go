package engine_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestServerIsNotHeldByDescriptorsOfAProgram: no program has a channel to the
// server that a descriptor can be sent over, however it was started.
func TestServerIsNotHeldByDescriptorsOfAProgram(t *testing.T) {
	programs := map[sandboxmcp.Language]string{
		sandboxmcp.Python: testkit.Hostile(t, "sends-lingering-socket.py"),
		sandboxmcp.Node:   testkit.Hostile(t, "finds-sockets.js"),
		sandboxmcp.Shell:  testkit.Hostile(t, "finds-sockets.sh"),
	}
	for name, pool := range map[string]bool{"one-shot": false, "ready": true} {
		t.Run(name, func(t *testing.T) {
			var b backend.Backend
			e := openRealOn(t, process.Config{NoPool: !pool}, func(c *engine.Config) { b, c.MaxSessions = c.Backends[0], 20 })
			for l, code := range programs {
				needs(t, e, l)
				held := func(r sandboxmcp.Request) {
					t.Helper()
					r.Limits.TimeoutSeconds = 5
					if res := execute(t, e, r); res.Stdout != "took []\n" {
						t.Errorf("%s: got %s %q %q, want no descriptor that takes others", l, res.Status, res.Stdout, res.Stderr)
					}
				}
				rounds := 1
				if pool { // executed, then in a ready sandbox, then forked or started ahead
					rounds = 6
				}
				for range rounds {
					held(sandboxmcp.Request{Code: code, Language: l})
				}
				if ready := b.(backend.Pooler).Pool(); pool && l == sandboxmcp.Python && ready["zygotes"] == 0 {
					t.Logf("nothing was forked: %v", ready)
				}
				for range rounds {
					id := create(t, e, sandboxmcp.SessionSpec{Language: l})
					held(in(id, code))
					held(in(id, code))
				}
			}
		})
	}
}
