package engine_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// real is a program of Python that tries a few addresses.
func real(urls ...string) sandboxmcp.Request {
	var b strings.Builder
	b.WriteString("import urllib.request\n")
	for _, u := range urls {
		fmt.Fprintf(&b, "try: print('GOT', urllib.request.urlopen(%q, timeout=10).read().decode())\nexcept Exception as e: print('NOT', type(e).__name__)\n", u)
	}
	return sandboxmcp.Request{Code: b.String(), Language: sandboxmcp.Python}
}

func answers(res sandboxmcp.Result) string {
	var out []string
	for line := range strings.Lines(res.Stdout) {
		out = append(out, strings.Fields(line)[0])
	}
	return strings.Join(out, " ")
}

// A session reaches a host once a person opens it, and no longer once the person revokes it.
// The same holds for what its runs left running.
func TestRealSessionNetwork(t *testing.T) {
	t.Parallel()
	e := openReal(t, func(c *engine.Config) { c.Detours = site(t) })
	needs(t, e, sandboxmcp.Python)
	try := func(id sandboxmcp.SessionID, change ...func(*sandboxmcp.Request)) sandboxmcp.Result {
		t.Helper()
		r := real("http://api.site.test/", "http://other.site.test/")
		r.SessionID = id
		for _, f := range change {
			f(&r)
		}
		res := execute(t, e, r)
		if res.Status != sandboxmcp.StatusCompleted {
			t.Fatalf("got %s: %s", res.Status, res.Stderr)
		}
		return res
	}
	const closed, opened = sandboxmcp.WallTold, sandboxmcp.WallEgress
	if res := try("s"); answers(res) != "NOT NOT" || !slices.Contains(res.Isolation.Walls, closed) {
		t.Errorf("before a host is open: got %s, %q; want NOT NOT behind the closed wall", answers(res), res.Isolation.Walls)
	}
	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}}); err != nil {
		t.Fatal(err)
	}
	res := try("s")
	if !slices.Contains(res.Isolation.Walls, opened) || slices.Contains(res.Isolation.Walls, closed) {
		t.Errorf("walls of a run with a network: got %q, want the open wall: they are to be read after it was opened", res.Isolation.Walls)
	}
	if got := answers(res); got != "GOT NOT" || !slices.Contains(res.Network.Allowed, "api.site.test:80") || res.StateLost {
		t.Errorf("approved: %s, %+v", got, res.Network)
	}
	if res := try("s", func(r *sandboxmcp.Request) { r.AllowedDomains = []string{} }); answers(res) != "NOT NOT" || len(res.Network.Allowed) != 0 {
		t.Errorf("narrowed to nothing: got %s, %+v; want NOT NOT", res.Stdout, res.Network)
	}
	if res := try("s", func(r *sandboxmcp.Request) { r.AllowedDomains, r.GrantDomains = []string{"other.site.test"}, true }); answers(res) != "NOT GOT" {
		t.Errorf("opened for one run: got %s, want NOT GOT", res.Stdout)
	}
	if got := answers(try("s")); got != "GOT NOT" {
		t.Errorf("afterwards: %s", got)
	}
	if got := answers(try("s", func(r *sandboxmcp.Request) { r.Offline = true })); got != "NOT NOT" {
		t.Errorf("a run without a network: %s", got)
	}
	if got := answers(try("off", func(r *sandboxmcp.Request) { r.Session = &sandboxmcp.SessionSpec{Offline: true} })); got != "NOT NOT" {
		t.Errorf("a session without a network: %s", got)
	}
	if got := answers(try("off")); got != "NOT NOT" {
		t.Errorf("its next run: %s", got)
	}
	if _, err := e.RevokeEgress(t.Context(), sandboxmcp.Caller{Actor: "me"}, "api.site.test"); err != nil {
		t.Fatal(err)
	}
	if got := answers(try("s")); got != "NOT NOT" {
		t.Errorf("revoked: %s", got)
	}
	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}, Scope: sandboxmcp.GrantSession, SessionID: "s"}); err != nil {
		t.Fatal(err)
	}
	if got := answers(try("s")); got != "GOT NOT" {
		t.Errorf("for the session: %s", got)
	}
	if got := answers(try("t")); got != "NOT NOT" {
		t.Errorf("another session: %s", got)
	}
	if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{Actor: "me"}, "s"); err != nil {
		t.Fatal(err)
	}
	if got := answers(try("s")); got != "NOT NOT" {
		t.Errorf("a new session of the name: %s", got)
	}
}

// Programs of every language reach open hosts, with and without using the proxy, in fresh
// sandboxes and in later runs.
func TestRealNetworkLanguages(t *testing.T) {
	t.Parallel()
	e := openReal(t, func(c *engine.Config) {
		c.Network, c.Operator, c.Detours = true, domains(t, "api.site.test"), site(t)
	})
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node, sandboxmcp.Shell)
	for name, r := range map[string]sandboxmcp.Request{
		"python":           real("http://api.site.test/", "http://other.site.test/"),
		"python, no proxy": {Language: sandboxmcp.Python, Code: "import os\nfor k in list(os.environ):\n    if 'proxy' in k.lower(): del os.environ[k]\n" + real("http://api.site.test/", "http://other.site.test/").Code},
		"node":             {Language: sandboxmcp.Node, Code: "(async () => { for (const u of ['http://api.site.test/', 'http://other.site.test/']) { try { const r = await fetch(u); console.log(r.ok ? 'GOT' : 'NOT', await r.text()) } catch (e) { console.log('NOT', e.message) } } })()"},
		"bash":             {Language: sandboxmcp.Shell, Code: "for h in api.site.test other.site.test; do if exec 3<>/dev/tcp/$h/80; then printf 'GET / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' $h >&3; if head -1 <&3 | grep -q 200; then echo GOT; else echo NOT; fi; else echo NOT; fi; done 2>/dev/null"},
	} {
		for range 2 {
			if res := execute(t, e, r); answers(res) != "GOT NOT" {
				t.Errorf("%s: got %q %q, want GOT NOT", name, res.Stdout, res.Stderr)
			}
		}
	}
}

// A host name that holds a secret is refused: no resolver, person or record reads it.
func TestSecretInAName(t *testing.T) {
	const value = "kit0123456789ab"
	to := site(t)[sandboxmcp.Domain{Host: "api.site.test"}]
	dir := filepath.Join(t.TempDir(), "state")
	e := open(t, connected(t), at(dir), func(c *engine.Config) {
		c.Network, c.Operator, c.Hold = true, domains(t, "*.site.test"), time.Minute
		c.Detours = map[sandboxmcp.Domain]netip.AddrPort{{Host: "api.site.test"}: to, {Host: value + ".site.test"}: to}
	})
	addSecret(t, e, "TOKEN", value)
	names := []string{value + ".site.test", fmt.Sprintf("%x.site.test", value), value + ".elsewhere.test"}
	res := execute(t, e, shell(strings.Join(append(names, "api.site.test"), "\n")))
	wantOut(t, res, mask+".site.test 403", mask+".site.test 403", mask+".elsewhere.test 403", "api.site.test 200")
	for _, d := range res.Network.Denied {
		if !strings.HasPrefix(d.Host, mask) || d.Reason != "the name contains a secret" {
			t.Errorf("denied: got %+v, want the secret masked and named as the reason", d)
		}
	}
	if len(res.Network.Denied) != 3 {
		t.Errorf("denied: got %+v, want 3", res.Network.Denied)
	}
	if l, err := e.Egress(t.Context(), sandboxmcp.Caller{}); err != nil || len(l.Pending) > 0 {
		t.Errorf("questions: got %+v, %v; want none", l, err)
	}
	for _, r := range rows(t, dir, "default") {
		if text := fmt.Sprintf("%+v", r); strings.Contains(text, value) || strings.Contains(text, fmt.Sprintf("%x", value)) {
			t.Errorf("record: got the secret in %s, want it masked", text)
		}
	}
}
