package gate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// A denial is known for ten minutes, to its own namespace, for the ports of its domain.
func TestDeniedIsKnownForTenMinutes(t *testing.T) {
	b := open(t)
	if b.Denied(t.Context(), "default", at("api.site.test", 443)) {
		t.Error("before: got denied, want not")
	}
	for _, domain := range []string{"api.site.test", "*.wide.test:8443"} {
		if _, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, sandboxmcp.AccessDecision{ID: b.ask(domain).ID, Deny: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		ns   sandboxmcp.Namespace
		host sandboxmcp.Host
		port int
		want bool
	}{
		{"default", "api.site.test", 443, true},
		{"default", "api.site.test", 80, true},
		{"default", "api.site.test", 0, true},
		{"default", "api.site.test", 22, false},
		{"default", "other.site.test", 443, false},
		{"default", "a.wide.test", 8443, true},
		{"default", "a.wide.test", 443, false},
		{"default", "a.wide.test", 0, true},
		{"team", "api.site.test", 443, false},
	} {
		if got := b.Denied(t.Context(), c.ns, at(c.host, c.port)); got != c.want {
			t.Errorf("%s %s:%d: got %v, want %v", c.ns, c.host, c.port, got, c.want)
		}
	}
	b.pass(10*time.Minute - time.Second)
	if !b.Denied(t.Context(), "default", at("api.site.test", 443)) {
		t.Error("just before ten minutes: got not denied, want denied")
	}
	b.pass(time.Second)
	if b.Denied(t.Context(), "default", at("api.site.test", 443)) {
		t.Error("after ten minutes: got denied, want not")
	}
}

// A denial that was made while the clock was a year ahead does not hold for that year.
func TestADenialEndsWithAClockThatIsSetBack(t *testing.T) {
	b := open(t)
	year := 365 * 24 * time.Hour
	b.pass(year)
	denied := b.ask("api.site.test")
	if _, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, sandboxmcp.AccessDecision{ID: denied.ID, Deny: true}); err != nil {
		t.Fatal(err)
	}
	b.pass(-30 * time.Second) // within what clocks may differ by
	if got := b.ask("api.site.test"); got.ID != denied.ID || !b.Denied(t.Context(), "default", at("api.site.test", 443)) {
		t.Errorf("half a minute back: got %+v, want the denial", got)
	}
	b.pass(-year)
	if b.Denied(t.Context(), "default", at("api.site.test", 443)) {
		t.Error("a year back: got denied, want not")
	}
	if got := b.ask("api.site.test"); got.Status != sandboxmcp.ApprovalPending {
		t.Errorf("a year back: got %+v, want a new question", got)
	}
}

// What a person decides at one server holds at once at another one, whose clock is two minutes behind.
func TestDecisionsHoldAtServersWithOtherClocks(t *testing.T) {
	b := open(t)
	clock := func() time.Time { return b.now.Add(-2 * time.Minute) }
	o := gate.New(gate.Config[sandboxmcp.Domain]{Kind: gate.Domains(), Key: secret, Store: b.store, Audit: recordIn(b.store, clock), Approvals: true, Now: clock})
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}, Scope: sandboxmcp.GrantOnce})
	if _, ok, err := o.Allows(t.Context(), one, at("api.site.test", 443)); !ok || err != nil {
		t.Errorf("a grant: got %v, %v, want it open", ok, err)
	}
	denied := b.ask("www.site.test")
	if _, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, sandboxmcp.AccessDecision{ID: denied.ID, Deny: true}); err != nil {
		t.Fatal(err)
	}
	if !o.Denied(t.Context(), "default", at("www.site.test", 443)) {
		t.Error("a denial: got not denied, want denied")
	}
}

// A question without a reason shows none. That of a program is not the model's.
func TestReasonsAreShownIfThereAreAny(t *testing.T) {
	b := open(t)
	for _, c := range []struct {
		domain         string
		ask            gate.Ask
		reason, author string
		notice         string
	}{
		{"a.site.test", gate.Ask{Reason: "to read"}, `"to read"`, "model", `asks for a.site.test; the model says "to read"; answer`},
		{"b.site.test", gate.Ask{}, "", "model", "asks for b.site.test; answer"},
		{"c.site.test", gate.Ask{RequestID: "r1"}, "", "program", "waits for c.site.test; answer"},
	} {
		a, _, err := b.Request(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "mcp"}, site(t, c.domain), c.ask)
		if err != nil {
			t.Fatal(err)
		}
		found, err := b.Find(t.Context(), "default", a.ID)
		if err != nil || a.Reason != c.reason || a.ReasonFrom != c.author || found.Reason != c.reason || found.ReasonFrom != c.author {
			t.Errorf("%s: got %q from %s, then %q from %s, %v; want %q from %s", c.domain, a.Reason, a.ReasonFrom, found.Reason, found.ReasonFrom, err, c.reason, c.author)
		}
		if !strings.Contains(b.notices.String(), c.notice) {
			t.Errorf("notices: got %q, want %q in them", b.notices.String(), c.notice)
		}
	}
}

// TestADenialInTheRecordIsFinal: a question that was denied cannot be approved, although a writer of the database has taken the
// denial out of its row, and whatever indexes and clocks say.
func TestADenialInTheRecordIsFinal(t *testing.T) {
	changes := map[string]string{
		"the row": "", "the clock was set back": "",
		"an entry before the first one": `; INSERT INTO audit (position, id, namespace, seq, timestamp, action, phase, request_id, session_id, language, detail, actor, prev, hash, mac)
			VALUES (-5, 'n', 'more', 1, '', '', '', '', '', '', '', '', '', '', '')`,
	}
	if storetest.Postgres() {
		changes["an index"] = `; DROP INDEX audit_action; ` + strings.Replace(lyingIndex, "(action, position)", "(action)", 1)
	} else {
		changes["an index"] = `; DROP INDEX audit_action; CREATE INDEX audit_action ON audit (namespace, action, seq) WHERE action <> 'execute' AND action <> 'egress_denied'; ` + asBefore
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) { denialIsFinal(t, change, name == "the clock was set back") })
	}
}

func denialIsFinal(t *testing.T, change string, back bool) {
	b := open(t)
	person := sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace, Actor: "cli"}
	denied, other := b.ask("api.example.com"), b.ask("www.example.com")
	if back {
		b.pass(-5 * time.Minute)
	}
	if _, _, err := b.Decide(t.Context(), person, sandboxmcp.AccessDecision{ID: denied.ID, Deny: true}); err != nil {
		t.Fatal(err)
	}
	b.tamper(`UPDATE approvals SET state = 'pending', decided_at = ''` + change)
	for _, check := range []bool{true, false} {
		if _, _, err := b.Decide(t.Context(), person, sandboxmcp.AccessDecision{ID: denied.ID, Check: check}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeEgressDenied {
			t.Errorf("check %v: got %v, want egress_denied", check, err)
		}
	}
	if b.lets(one, "api.example.com") {
		t.Error("got it open, want it closed")
	}
	if _, _, err := b.Decide(t.Context(), person, sandboxmcp.AccessDecision{ID: denied.ID, Deny: true}); err != nil {
		t.Errorf("denied again: got %v, want no error", err)
	}
	if _, _, err := b.Decide(t.Context(), person, sandboxmcp.AccessDecision{ID: other.ID}); err != nil || !b.lets(one, "www.example.com") {
		t.Errorf("another question: got %v, want it open", err)
	}
}
