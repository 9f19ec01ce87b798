package engine_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// dripping is a site that answers for as long as the connection is open.
func dripping(t *testing.T) map[sandboxmcp.Domain]netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for r.Context().Err() == nil {
			fmt.Fprintln(w, "drip")
			w.(http.Flusher).Flush()
			<-every.C
		}
	}))
	t.Cleanup(s.Close)
	return map[sandboxmcp.Domain]netip.AddrPort{{Host: "api.site.test"}: netip.MustParseAddrPort(s.Listener.Addr().String())}
}

// A connection that a run of a session left open is closed once a later run may not reach its
// host. The programs of a session share a sandbox, so the later run could use it.
func TestRealConnectionsOfBefore(t *testing.T) {
	t.Parallel()
	e := openReal(t, func(c *engine.Config) { c.Detours = dripping(t) })
	needs(t, e, sandboxmcp.Python)
	run := func(id sandboxmcp.SessionID, code string, change func(*sandboxmcp.Request)) sandboxmcp.Result {
		t.Helper()
		r := sandboxmcp.Request{Language: sandboxmcp.Python, SessionID: id, Code: code}
		if change != nil {
			change(&r)
		}
		res := execute(t, e, r)
		if res.Status != sandboxmcp.StatusCompleted {
			t.Fatalf("got %s: %s", res.Status, res.Stderr)
		}
		return res
	}
	grant := func(r *sandboxmcp.Request) { r.AllowedDomains, r.GrantDomains = []string{"api.site.test"}, true }
	got := testkit.Hostile(t, "stays-connected.py") + "print(there('got', 10))"
	const cut, still = "print(there('cut', 10))", "print(there('cut', 0.3))"
	want := func(what string, res sandboxmcp.Result, want string) {
		t.Helper()
		if strings.TrimSpace(res.Stdout) != want {
			t.Errorf("%s: got %q, want %s", what, res.Stdout, want)
		}
	}

	want("granted for one run", run("s", got, grant), "True")
	want("the run is over", run("s", cut, nil), "True")

	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}, Scope: sandboxmcp.GrantOnce}); err != nil {
		t.Fatal(err)
	}
	want("opened for one run", run("s", got, nil), "True")
	want("that run is over", run("s", cut, nil), "True")

	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}}); err != nil {
		t.Fatal(err)
	}
	want("open", run("s", got, nil), "True")
	want("open still", run("s", still, nil), "False")
	res := run("s", cut, func(r *sandboxmcp.Request) { r.AllowedDomains = []string{} })
	want("narrowed to nothing", res, "True")
	if len(res.Network.Allowed) != 0 || len(res.Network.Denied) != 1 || !strings.Contains(res.Network.Denied[0].Reason, "was ended") {
		t.Errorf("narrowed to nothing: got %+v, want one denial that says the connection was ended", res.Network)
	}

	want("open", run("s", got, nil), "True")
	want("a run without a network", run("s", cut, func(r *sandboxmcp.Request) { r.Offline = true }), "True")

	want("open", run("s", got, nil), "True")
	if _, err := e.RevokeEgress(t.Context(), sandboxmcp.Caller{Actor: "me"}, "api.site.test"); err != nil {
		t.Fatal(err)
	}
	want("revoked", run("s", cut, nil), "True")
}

// Open ports, whichever and however many, never cost a run its network.
func TestPortsThatAreOpen(t *testing.T) {
	f := connected(t)
	var asked []int
	inner := f.onNetwork
	f.onNetwork = func(ports []int) (*backend.Network, error) {
		asked = ports
		return inner(ports)
	}
	dns := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(dns.Close)
	e := open(t, f, func(c *engine.Config) {
		c.Detours = map[sandboxmcp.Domain]netip.AddrPort{{Host: "api.site.test"}: netip.MustParseAddrPort(dns.Listener.Addr().String())}
	})
	grant := func(d string) {
		t.Helper()
		if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: d}}); err != nil {
			t.Fatal(err)
		}
	}
	grant("api.site.test:53")
	grant("api.site.test:312")
	grant("api.site.test:443")
	for port := range 40 {
		grant(fmt.Sprintf("api.site.test:%d", 9000+port))
	}
	res := execute(t, e, shell("api.site.test:53\napi.site.test:312\napi.site.test:9039\napi.site.test:80"))
	wantOut(t, res, "api.site.test:53 200", "api.site.test:312 200", "api.site.test:9039 200", "api.site.test:80 403")
	if len(asked) != 24 || slices.Contains(asked, 53) || slices.Contains(asked, 312) || slices.Contains(asked, 443) || asked[0] != 9000 {
		t.Errorf("ports opened: got %v, want 24 from 9000 on, and none that is always open", asked)
	}
	if text := fmt.Sprint(res.Metadata["network"]); text != "18 open ports can be reached through the proxy only" {
		t.Errorf("metadata: got %q, want that 18 ports are left to the proxy", text)
	}
}

// What a session's program tries between two runs, or after the last one, is on record. No
// result holds it.
func TestRealRefusedBetweenRuns(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	e := openReal(t, at(dir), func(c *engine.Config) { c.Network, c.Detours = true, site(t) })
	needs(t, e, sandboxmcp.Python)
	tries := func() (n int) {
		for _, r := range rows(t, dir, "default") {
			if r.Action == "egress_denied" && r.Metadata["between_runs"] == true && r.Metadata["host"] == "between.site.test" && r.SessionID == "s" && r.RequestID == "" {
				n++
			}
		}
		return n
	}
	run := func(code string) {
		t.Helper()
		if res := execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, SessionID: "s", Code: code}); res.Status != sandboxmcp.StatusCompleted {
			t.Fatalf("got %s: %s", res.Status, res.Stderr)
		}
	}
	run(testkit.Hostile(t, "tries-between-runs.py"))
	testkit.Until(t, "an attempt between two runs on record", func() bool {
		time.Sleep(50 * time.Millisecond) // the time between two runs, in which the program tries
		run("pass")
		return tries() > 0
	})
	before := tries()
	time.Sleep(500 * time.Millisecond) // time to try; it is recorded only when the session ends
	if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{Actor: "me"}, "s"); err != nil {
		t.Fatal(err)
	}
	if tries() == before {
		t.Errorf("attempts on record: got %d, as many as before the last pause; want more", before)
	}
}

// The ports of a session's earlier runs do not keep the network from a later one.
func TestRealPortsOfSession(t *testing.T) {
	t.Parallel()
	e := openReal(t, func(c *engine.Config) { c.Detours = site(t) })
	needs(t, e, sandboxmcp.Python)
	for round := range 3 {
		r := real("http://api.site.test/")
		r.SessionID, r.GrantDomains = "s", true
		r.AllowedDomains = []string{"api.site.test"}
		for port := range 20 {
			r.AllowedDomains = append(r.AllowedDomains, fmt.Sprintf("api.site.test:%d", 9000+100*round+port))
		}
		if res := execute(t, e, r); answers(res) != "GOT" || (res.Metadata["network"] == nil) != (round == 0) {
			t.Errorf("round %d: got %s%s, %v; want GOT, and a note in every round but the first", round, res.Stdout, res.Stderr, res.Metadata["network"])
		}
	}
}

// The caller that asked learns that a grant is for one session only.
func TestApprovedForOneSession(t *testing.T) {
	e := open(t, connected(t))
	create(t, e, sandboxmcp.SessionSpec{ID: "s"})
	wait := background(t, func() (sandboxmcp.AccessAnswer, error) {
		return e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "api.site.test", Wait: 15 * time.Second})
	})
	var asked []sandboxmcp.Approval
	for len(asked) == 0 && t.Context().Err() == nil {
		l, err := e.Egress(t.Context(), sandboxmcp.Caller{})
		if err != nil {
			t.Fatal(err)
		}
		asked = l.Pending
	}
	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{ID: asked[0].ID, Scope: sandboxmcp.GrantSession, SessionID: "s"}); err != nil {
		t.Fatal(err)
	}
	got, err := wait()
	if err != nil || !got.Approved || got.ExpiresAt == nil || got.HowToApprove != "it is open to session s only" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A request that an earlier run left waiting does not use up a grant for one run.
func TestRealHeldBeyondItsRun(t *testing.T) {
	t.Parallel()
	e := openReal(t, func(c *engine.Config) { c.Detours = site(t) })
	needs(t, e, sandboxmcp.Python)
	res := execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, SessionID: "s", Hold: time.Minute, Code: testkit.Hostile(t, "waits-beyond-its-run.py")})
	l, err := e.Egress(t.Context(), sandboxmcp.Caller{})
	if err != nil || len(l.Pending) != 1 || res.Status != sandboxmcp.StatusCompleted {
		t.Fatalf("got %+v, %v, %s; want a completed run with one question left", l, err, res.Stderr)
	}
	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{ID: l.Pending[0].ID, Scope: sandboxmcp.GrantOnce}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // a held connection looks for grants ten times a second, and must not take this one
	r := real("http://api.site.test/")
	r.SessionID = "s"
	if res := execute(t, e, r); answers(res) != "GOT" {
		t.Errorf("the run that the host was opened for: got %q, want GOT", res.Stdout)
	}
}

// TestARunsIDDoesNotGetItsGrantAgain: a caller who lets the result of a run be dropped, and gives its id to another run, does not
// use the grant for one run again.
func TestARunsIDDoesNotGetItsGrantAgain(t *testing.T) {
	t.Parallel()
	e := openReal(t, func(c *engine.Config) { c.Detours, c.KeepBytes = dripping(t), 1 })
	needs(t, e, sandboxmcp.Python)
	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}, Scope: sandboxmcp.GrantOnce}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"True", "False"} {
		res := execute(t, e, sandboxmcp.Request{ID: "mine", Language: sandboxmcp.Python, Code: `import urllib.request
try:
    print(urllib.request.urlopen("http://api.site.test/", timeout=10).read(4) == b"drip")
except OSError:
    print(False)`})
		if strings.TrimSpace(res.Stdout) != want {
			t.Errorf("got %q %q, want %s", res.Stdout, res.Stderr, want)
		}
		execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: "1"}) // its result takes the place of the other one
	}
}
