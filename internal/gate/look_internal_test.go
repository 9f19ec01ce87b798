package gate

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// TestARevocationWhileGrantsAreRead: a grant that is revoked or used between the reading of the grants and that of the record was
// not put back.
func TestARevocationWhileGrantsAreRead(t *testing.T) {
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: t.TempDir()}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	l, err := audit.Open(t.Context(), s, audit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.WithoutCancel(t.Context())) })
	var log bytes.Buffer
	key := func(purpose string) ([]byte, error) { return []byte(purpose), nil }
	g := New(Config[sandboxmcp.Domain]{Kind: Domains(), Key: key, Store: s, Audit: l, Approvals: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c := sandboxmcp.Caller{Namespace: "default", Actor: "cli"}
	for domain, scope := range map[string]sandboxmcp.GrantScope{"revoked.example.com": sandboxmcp.GrantAlways, "used.example.com": sandboxmcp.GrantOnce} {
		if _, _, err = g.Decide(t.Context(), c, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: domain}, Scope: scope}); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := store.Select(t.Context(), s.DB(), (*stored).scan, selectGrants, "", "", "")
	if err != nil || len(rows) != 2 {
		t.Fatalf("got %d rows and %v, want 2", len(rows), err)
	}
	if _, err = g.Revoke(t.Context(), c, "revoked.example.com"); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := g.Allows(t.Context(), Who{Namespace: "default", RequestID: "r1"}, func(d sandboxmcp.Domain) bool { return d.MatchHost("used.example.com") }); !ok || err != nil {
		t.Fatalf("got %v and %v, want the domain open", ok, err)
	}
	all, err := g.judge(t.Context(), s.DB(), rows)
	if len(all) != 0 || err != nil {
		t.Errorf("got %+v and %v, want no grant", all, err)
	}
	if strings.Contains(log.String(), "put back") {
		t.Errorf("got the log %q, want no row that was put back", log.String())
	}
}

// TestAGrantThatSeveralRunsHaveUsedOpensNothing: no server lets a second run use a grant for one run.
func TestAGrantThatSeveralRunsHaveUsedOpensNothing(t *testing.T) {
	e := &Endings{of: map[name]ending{}}
	e.add("r1", `{"grant_id":"g"}`, true)
	e.add("r1", `{"grant_id":"g"}`, true) // the record is read again
	if row := (&stored{id: "g", request: "r1"}); !e.fits(row) {
		t.Error("the run that has used the grant cannot use it")
	}
	e.add("r2", `{"grant_id":"g"}`, true)
	for _, request := range []string{"r1", "r2", ""} {
		if e.fits(&stored{id: "g", request: request}) {
			t.Errorf("run %q can use the grant", request)
		}
	}
}
