package door_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

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

// TestWhoseAnswersCount: an operator decides. A client with another key, with a token or without both may be a program
// that approves its own request. Another test shows that a client of the server's user decides.
func TestWhoseAnswersCount(t *testing.T) {
	keys := door.Rules{Keys: []door.Key{key("team-key", "team"), {Secret: sandboxmcp.NewSecret("operator-key"), Operator: true}}}
	for name, c := range map[string]struct {
		door    door.Config
		key     string
		decides bool
	}{
		"a key":             {door.Config{Rules: keys}, "team-key", false},
		"of an operator":    {door.Config{Rules: keys}, "operator-key", true},
		"in the key file":   {door.Config{Local: sandboxmcp.NewSecret("local-key")}, "local-key", false},
		"none is needed":    {door.Config{NoAuth: true}, "", false},
		"none, and a key":   {door.Config{NoAuth: true}, "any", false},
		"a token":           {door.Config{Tokens: anyToken{}}, "any", false},
		"a key of that set": {door.Config{Tokens: anyToken{}, Rules: keys}, "team-key", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := open(t, c.door).ask(http.MethodGet, "/", "", "X-API-Key", c.key)
			var id sandboxmcp.Identity
			if err := json.Unmarshal([]byte(got.body), &id); err != nil || got.StatusCode != http.StatusOK || id.Decides() != c.decides {
				t.Errorf("got %d %q, want an identity that decides: %v", got.StatusCode, got.body, c.decides)
			}
		})
	}
}

// anyToken accepts every token.
type anyToken struct{}

func (anyToken) Verify(context.Context, string) (sandboxmcp.Identity, time.Time, error) {
	return sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{"team"}, Actor: "oauth ann"}, time.Now().Add(time.Hour), nil
}

func (anyToken) Challenge() string { return "" }
