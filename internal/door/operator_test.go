package door_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
)

// TestOnlyTheKeyOfAnOperatorHoldsEveryNamespace: its callers select any namespace; those of other
// keys their own, whatever they write.
func TestOnlyTheKeyOfAnOperatorHoldsEveryNamespace(t *testing.T) {
	var got sandboxmcp.Identity
	h := door.New(door.Config{
		Own: "own", Rules: door.Rules{Keys: []door.Key{
			{Secret: sandboxmcp.NewSecret("plain-key")},
			{Secret: sandboxmcp.NewSecret("team-key"), Namespaces: []sandboxmcp.Namespace{"team"}},
			{Secret: sandboxmcp.NewSecret("operator-key"), Operator: true},
		}},
	}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = door.IdentityOf(r.Context()) }))
	server := httptest.NewServer(h)
	defer server.Close()
	for _, c := range []struct {
		key, tenant string
		status      int
		own         sandboxmcp.Namespace
		every       bool
	}{
		{"plain-key", "", 200, "own", false},
		{"plain-key", "team", 403, "", false},
		{"team-key", "", 200, "team", false},
		{"team-key", "*", 403, "", false},
		{"operator-key", "", 200, "own", true},
		{"operator-key", "team", 200, "team", true},
		{"operator-key", "*", 403, "", false},
		{"operator-key", "a b", 403, "", false},
	} {
		got = sandboxmcp.Identity{}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-Key", c.key)
		if c.tenant != "" {
			r.Header.Set("X-Tenant-Id", c.tenant)
		}
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != c.status || got.Own() != c.own || got.Every != c.every {
			t.Errorf("%s with tenant %q: got %d and %+v, want %d, namespace %q, every %v", c.key, c.tenant, res.StatusCode, got, c.status, c.own, c.every)
		}
	}
}
