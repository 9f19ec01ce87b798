package engine_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// TestGrantsAreForLiveSessions: a grant for a session that is not there would open nothing, so no
// decision says that it has approved one.
func TestGrantsAreForLiveSessions(t *testing.T) {
	e := open(t, connected(t))
	create(t, e, sandboxmcp.SessionSpec{ID: "live"})
	decide := func(d sandboxmcp.AccessDecision, id sandboxmcp.SessionID) error {
		d.Scope, d.SessionID = sandboxmcp.GrantSession, id
		_, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, d)
		return err
	}
	domain := sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}}
	asCode(t, decide(domain, "gone"), sandboxmcp.CodeSessionNotFound)
	asked, err := e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "other.site.test", SessionID: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	question := sandboxmcp.AccessDecision{ID: asked.ApprovalID}
	asCode(t, decide(question, ""), sandboxmcp.CodeSessionNotFound)
	question.Check = true
	asCode(t, decide(question, "gone"), sandboxmcp.CodeSessionNotFound)
	_, err = e.DecidePackage(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Package: "python:one"}, Scope: sandboxmcp.GrantSession, SessionID: "gone"})
	asCode(t, err, sandboxmcp.CodeSessionNotFound)
	if l, err := e.Egress(t.Context(), sandboxmcp.Caller{}); err != nil || len(l.Granted) > 0 || len(l.Pending) != 1 {
		t.Errorf("got %+v, %v, want no grant and one question", l, err)
	}
	if err = decide(domain, "live"); err != nil {
		t.Error(err)
	}
	if err = decide(sandboxmcp.AccessDecision{ID: asked.ApprovalID}, "live"); err != nil {
		t.Error(err)
	}
}

// TestGrantsOfEndedSessionsAreNotListed: a list names only grants that a program can still use.
func TestGrantsOfEndedSessionsAreNotListed(t *testing.T) {
	e := open(t, connected(t), func(c *engine.Config) { c.Packages = "ask" })
	listed := func(when string, want int) {
		t.Helper()
		domains, err := e.Egress(t.Context(), sandboxmcp.Caller{})
		if err != nil {
			t.Fatal(err)
		}
		packages, err := e.PackageAccess(t.Context(), sandboxmcp.Caller{})
		if err != nil {
			t.Fatal(err)
		}
		if d, p := len(domains.Granted), len(packages.Granted); d != want || p != want {
			t.Errorf("%s: got %d domains and %d packages, want %d of each", when, d, p, want)
		}
	}
	create(t, e, sandboxmcp.SessionSpec{ID: "brief"})
	d := sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}, Scope: sandboxmcp.GrantSession, SessionID: "brief"}
	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, d); err != nil {
		t.Fatal(err)
	}
	d.Subject = sandboxmcp.Subject{Package: "python:one"}
	if _, err := e.DecidePackage(t.Context(), sandboxmcp.Caller{}, d); err != nil {
		t.Fatal(err)
	}
	listed("while the session lives", 1)
	if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{}, "brief"); err != nil {
		t.Fatal(err)
	}
	listed("after its end", 0)
	create(t, e, sandboxmcp.SessionSpec{ID: "brief"})
	listed("in a new session of its id", 0)
}
