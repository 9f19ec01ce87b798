package gate_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"

	"github.com/sandboxmcp/sandboxmcp"
)

// What a run pays at the gate: where nothing was ever opened, and where
// something is.
func BenchmarkOpen(b *testing.B) {
	s, err := store.Open(b.Context(), storetest.On(store.Config{Dir: b.TempDir()}))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	g := gate.New(gate.Config[sandboxmcp.Domain]{Kind: gate.Domains(), Key: secret, Store: s, Audit: recordIn(s, nil), Approvals: true})
	run := func(b *testing.B) {
		b.Helper()
		for b.Loop() {
			if _, err := g.Open(b.Context(), one); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("nothing", run)
	if _, _, err := g.Decide(b.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}}); err != nil {
		b.Fatal(err)
	}
	b.Run("one", run)
	b.Run("allows", func(b *testing.B) {
		for b.Loop() {
			if _, ok, err := g.Allows(b.Context(), one, at("api.example.com", 443)); !ok || err != nil {
				b.Fatal(err)
			}
		}
	})
}
