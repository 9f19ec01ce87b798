package gate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// childEnv makes the test binary a second process: "<dir> <what> <argument>".
const childEnv = "GATE_TEST_CHILD"

func TestMain(m *testing.M) { os.Exit(testkit.RunOrChild(m, childEnv, child)) }

// child decides in another process.
func child(args string) (err error) {
	var dir, what, arg string
	if _, err := fmt.Sscan(args, &dir, &what, &arg); err != nil {
		return err
	}
	ctx := context.Background()
	s, err := store.Open(ctx, storetest.On(store.Config{Dir: dir}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	g := gate.New(gate.Config[sandboxmcp.Domain]{Kind: gate.Domains(), Key: secret, Store: s, Audit: recordIn(s, nil), Approvals: true})
	switch what {
	case "approve", "deny":
		_, _, err = g.Decide(ctx, sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace, Actor: "child"}, sandboxmcp.AccessDecision{ID: arg, Deny: what == "deny"})
	case "open":
		_, _, err = g.Decide(ctx, sandboxmcp.Caller{Namespace: "default", Actor: "child"}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: arg}})
	case "revoke":
		_, err = g.Revoke(ctx, sandboxmcp.Caller{Namespace: "default", Actor: "child"}, arg)
	}
	return err
}

func inAnotherProcess(t *testing.T, dir, what, arg string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir+" "+what+" "+arg)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: got %v, want no error\n%s", what, arg, err, out)
	}
}

// bed is a gate with a fake clock.
type bed struct {
	*gate.Gate[sandboxmcp.Domain]
	t       *testing.T
	dir     string
	store   *store.Store
	notices bytes.Buffer

	mu  sync.Mutex
	now time.Time
}

func (b *bed) pass(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

func (b *bed) set(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
}

func open(t *testing.T, change ...func(*gate.Config[sandboxmcp.Domain])) *bed {
	t.Helper()
	b := &bed{t: t, dir: filepath.Join(t.TempDir(), "state"), now: time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)}
	var err error
	if b.store, err = store.Open(t.Context(), storetest.On(store.Config{Dir: b.dir})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.store.Close() })
	clock := func() time.Time {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.now
	}
	c := gate.Config[sandboxmcp.Domain]{Kind: gate.Domains(), Key: secret, Store: b.store, Audit: recordIn(b.store, clock), Approvals: true, Now: clock, Notices: &b.notices}
	for _, f := range change {
		f(&c)
	}
	b.Gate = gate.New(c)
	return b
}

func (b *bed) ask(domain string) sandboxmcp.Approval {
	b.t.Helper()
	a, _, err := b.Request(b.t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "mcp"}, site(b.t, domain), gate.Ask{Reason: "to read"})
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func (b *bed) grant(d sandboxmcp.AccessDecision) sandboxmcp.AccessGrant {
	b.t.Helper()
	who := sandboxmcp.Caller{Namespace: "default", Actor: "cli"}
	_, n, err := b.Decide(b.t.Context(), who, d)
	if err != nil || n == nil {
		b.t.Fatalf("decide %+v: got %v, %v; want a grant", d, n, err)
	}
	return *n
}

var one = gate.Who{Namespace: "default", RequestID: "r1"}

// at matches the domains that open a host and port; port 0 means any.
func at(h sandboxmcp.Host, port int) func(sandboxmcp.Domain) bool {
	return func(d sandboxmcp.Domain) bool { return d.Match(h, port) || port == 0 && d.MatchHost(h) }
}

// site parses a domain.
func site(t *testing.T, text string) sandboxmcp.Domain {
	t.Helper()
	d, err := gate.ParseDomain(text, 0)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// lets reports whether a host is open at port 443.
func (b *bed) lets(who gate.Who, host sandboxmcp.Host) bool {
	b.t.Helper()
	_, ok, err := b.Allows(b.t.Context(), who, at(host, 443))
	if err != nil {
		b.t.Fatal(err)
	}
	return ok
}

// record lists the audit of the namespace, oldest first: action and detail.
func (b *bed) record(ns sandboxmcp.Namespace) []string {
	b.t.Helper()
	page, err := recordIn(b.store, nil).List(b.t.Context(), ns, sandboxmcp.AuditQuery{})
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, e := range page.Entries {
		out = append([]string{e.Action + ": " + e.Detail}, out...)
	}
	return out
}

func wantCode(t *testing.T, err error, want sandboxmcp.Code) {
	t.Helper()
	if got := sandboxmcp.CodeOf(err); got != want {
		t.Fatalf("got %v with the code %q, want %q", err, got, want)
	}
}

func TestAskAndApprove(t *testing.T) {
	b := open(t)
	if b.lets(one, "api.example.com") {
		t.Fatal("a host before a question: got it open, want it closed")
	}
	a := b.ask("API.example.com.")
	if a.Status != sandboxmcp.ApprovalPending || a.Domain != "api.example.com" || a.Reason != `"to read"` || a.ReasonFrom != "model" {
		t.Errorf("got %+v", a)
	}
	if len(a.ID) < 26 {
		t.Errorf("got id %q, want one of at least 26 characters", a.ID)
	}
	if got := b.ask("api.example.com"); got.ID != a.ID {
		t.Errorf("the same was asked twice: %s and %s", a.ID, got.ID)
	}
	if b.lets(one, "api.example.com") {
		t.Fatal("a host after a question: got it open, want it closed")
	}
	n := b.grant(sandboxmcp.AccessDecision{ID: a.ID, SHA256: a.SHA256})
	if n.Scope != sandboxmcp.GrantDuration || n.ExpiresAt == nil || !n.ExpiresAt.Equal(b.now.Add(gate.DefaultFor)) || n.ApprovalID != a.ID {
		t.Errorf("got %+v", n)
	}
	for host, want := range map[sandboxmcp.Host]bool{"api.example.com": true, "example.com": false, "x.api.example.com": false, "xapi.example.com": false} {
		if got := b.lets(one, host); got != want {
			t.Errorf("%s is open: %t, want %t", host, got, want)
		}
	}
	if b.lets(gate.Who{Namespace: "other", RequestID: "r"}, "api.example.com") {
		t.Error("the grant in another namespace: got it open, want it closed")
	}
	if got := b.grant(sandboxmcp.AccessDecision{ID: a.ID}); got.ID != n.ID {
		t.Error("approving twice: got another grant, want the same")
	}
	if got := b.ask("api.example.com"); got.ID != a.ID || got.Status != sandboxmcp.ApprovalApproved {
		t.Errorf("asked for while it is open: %+v", got)
	}
	_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace}, sandboxmcp.AccessDecision{ID: a.ID, Deny: true})
	wantCode(t, err, sandboxmcp.CodeInvalidArgument)
	b.pass(gate.DefaultFor)
	if b.lets(one, "api.example.com") {
		t.Error("the grant after its time: got it open, want it closed")
	}
	want := []string{"egress_request: api.example.com", "egress_approved: api.example.com until 2031-02-04T04:05:06Z"}
	if d := cmp.Diff(want, b.record("default")); d != "" {
		t.Errorf("record (-want +got):\n%s", d)
	}
}

// TestApprovingOtherwiseIsRefused: a person who approves a question after another person did is not
// told of success if the grant has another scope, session or time than they chose.
func TestApprovingOtherwiseIsRefused(t *testing.T) {
	decisions := []sandboxmcp.AccessDecision{
		{},
		{Scope: sandboxmcp.GrantOnce},
		{Scope: sandboxmcp.GrantAlways},
		{Scope: sandboxmcp.GrantSession, SessionID: "one"},
		{Scope: sandboxmcp.GrantSession, SessionID: "two"},
		{Scope: sandboxmcp.GrantDuration, For: 2 * time.Hour},
		{Scope: sandboxmcp.GrantDuration, For: time.Minute},
	}
	by := sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace, Actor: "cli"}
	b := open(t)
	for i, first := range decisions {
		first.ID = b.ask(fmt.Sprintf("h%d.example.com", i)).ID
		_, have, err := b.Decide(t.Context(), by, first)
		if err != nil {
			t.Fatal(err)
		}
		for j, second := range decisions {
			second.ID = first.ID
			switch _, n, err := b.Decide(t.Context(), by, second); {
			case i == j && (err != nil || n.ID != have.ID):
				t.Errorf("%+v twice: got %+v, %v, want the same grant", first, n, err)
			case i != j && sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument:
				t.Errorf("%+v after %+v: got %+v, %v, want invalid_argument", second, first, n, err)
			}
		}
	}
}

func TestDenialIsFinal(t *testing.T) {
	b := open(t)
	a := b.ask("api.example.com")
	if _, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace, Actor: "cli"}, sandboxmcp.AccessDecision{ID: a.ID, Deny: true}); err != nil {
		t.Fatal(err)
	}
	_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace}, sandboxmcp.AccessDecision{ID: a.ID})
	wantCode(t, err, sandboxmcp.CodeEgressDenied)
	if got := b.ask("api.example.com"); got.ID != a.ID || got.Status != sandboxmcp.ApprovalDenied {
		t.Errorf("asked again at once: %+v", got)
	}
	if b.lets(one, "api.example.com") {
		t.Error("api.example.com: got it open, want it closed")
	}
	b.pass(11 * time.Minute)
	if got := b.ask("api.example.com"); got.ID == a.ID || got.Status != sandboxmcp.ApprovalPending {
		t.Errorf("asked again later: %+v", got)
	}
	want := []string{"egress_request: api.example.com", "egress_denied: api.example.com", "egress_request: api.example.com"}
	if d := cmp.Diff(want, b.record("default")); d != "" {
		t.Errorf("record (-want +got):\n%s", d)
	}
}

func TestQuestionsLapse(t *testing.T) {
	b := open(t)
	a := b.ask("api.example.com")
	b.pass(gate.PendingFor)
	_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace}, sandboxmcp.AccessDecision{ID: a.ID})
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	if got, err := b.Wait(t.Context(), a.ID, func() bool { return false }); err != nil || got.Status != sandboxmcp.ApprovalExpired {
		t.Errorf("got %+v, %v", got, err)
	}
	if l, err := b.List(t.Context(), ""); err != nil || len(l.Pending) != 0 {
		t.Errorf("got %+v, %v", l, err)
	}
	if got := b.ask("api.example.com"); got.ID == a.ID {
		t.Error("a question after it lapsed: got the same one, want a new one")
	}
	if b.lets(one, "api.example.com") {
		t.Error("api.example.com: got it open, want it closed")
	}
}

func TestUnknownID(t *testing.T) {
	b := open(t)
	_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace}, sandboxmcp.AccessDecision{ID: "apr_nobody"})
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	_, err = b.Find(t.Context(), "", "apr_nobody")
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	a := b.ask("api.example.com")
	_, _, err = b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "other"}, sandboxmcp.AccessDecision{ID: a.ID})
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
}

func TestScopes(t *testing.T) {
	b := open(t)
	t.Run("once", func(t *testing.T) {
		n := b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "once.example.com"}, Scope: sandboxmcp.GrantOnce})
		if got, _ := b.Open(t.Context(), gate.Who{Namespace: "default"}); len(got) != 0 {
			t.Errorf("open between two runs: %v", got)
		}
		two := gate.Who{Namespace: "default", RequestID: "r2"}
		for range 2 {
			if !b.lets(one, "once.example.com") {
				t.Error("a grant for one run, in the run that used it first: got it closed, want it open")
			}
		}
		if b.lets(two, "once.example.com") {
			t.Error("a grant for one run, in a second one: got it open, want it closed")
		}
		if want := "approval: used once: once.example.com"; b.record("default")[1] != want {
			t.Errorf("record: %q, want %q", b.record("default"), want)
		}
		if l, _ := b.List(t.Context(), "default"); len(l.Granted) != 1 || l.Granted[0].ID != n.ID || l.Granted[0].RequestID != "r1" {
			t.Errorf("got %+v", l.Granted)
		}
	})
	t.Run("session", func(t *testing.T) {
		born := b.now
		b.pass(time.Second)
		b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "session.example.com"}, Scope: sandboxmcp.GrantSession, SessionID: "s"})
		in := func(id sandboxmcp.SessionID, born time.Time) gate.Who {
			return gate.Who{Namespace: "default", SessionID: id, Born: born}
		}
		if !b.lets(in("s", born), "session.example.com") {
			t.Error("a grant for a session, in it: got it closed, want it open")
		}
		if b.lets(one, "session.example.com") || b.lets(in("t", born), "session.example.com") {
			t.Error("a grant for a session, in others: got it open, want it closed")
		}
		if b.lets(in("s", b.now.Add(time.Second)), "session.example.com") {
			t.Error("a grant for a session, in a later one of that name: got it open, want it closed")
		}
		_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "x.example.com"}, Scope: sandboxmcp.GrantSession, SessionID: "a b"})
		wantCode(t, err, sandboxmcp.CodeInvalidSessionID)
	})
	t.Run("always", func(t *testing.T) {
		n := b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "*.always.example.com:8443"}})
		if n.ExpiresAt != nil || n.Scope != sandboxmcp.GrantAlways {
			t.Errorf("got %+v", n)
		}
		b.pass(1000 * time.Hour)
		if _, ok, _ := b.Allows(t.Context(), one, at("a.always.example.com", 8443)); !ok {
			t.Error("a grant for ever: got it closed, want it open")
		}
		if _, ok, _ := b.Allows(t.Context(), one, at("a.always.example.com", 443)); ok {
			t.Error("another port: got it open, want it closed")
		}
		if got := b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "*.always.example.com:8443"}}); got.ID != n.ID {
			t.Error("opening what is open: got another grant, want the same")
		}
	})
	t.Run("duration", func(t *testing.T) {
		for _, d := range []time.Duration{0, -time.Second, time.Millisecond, 10000 * time.Hour} {
			_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "x.example.com"}, Scope: sandboxmcp.GrantDuration, For: d})
			wantCode(t, err, sandboxmcp.CodeInvalidArgument)
		}
		_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "x.example.com"}, Scope: "for good"})
		wantCode(t, err, sandboxmcp.CodeInvalidArgument)
	})
}

// Many runs at once: one of them gets what is open for one.
func TestOnceIsOnce(t *testing.T) {
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "once.example.com"}, Scope: sandboxmcp.GrantOnce})
	var wg sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for i := range 8 {
		wg.Go(func() {
			_, ok, err := b.Allows(t.Context(), gate.Who{Namespace: "default", RequestID: sandboxmcp.RequestID(fmt.Sprint("r", i))}, at("once.example.com", 80))
			if err != nil {
				t.Error(err)
			}
			if ok {
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if n != 1 {
		t.Errorf("%d runs were let out, want 1", n)
	}
}

// TestAUsedGrantIsNotListedAsOpen: a grant for one run is open until a run uses it.
func TestAUsedGrantIsNotListedAsOpen(t *testing.T) {
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "once.example.com"}, Scope: sandboxmcp.GrantOnce})
	status := func() sandboxmcp.GrantStatus {
		t.Helper()
		l, err := b.List(t.Context(), "default")
		if err != nil || len(l.Granted) != 1 {
			t.Fatalf("got %+v and %v, want one grant", l.Granted, err)
		}
		return l.Granted[0].Status
	}
	if got := status(); got != sandboxmcp.GrantOpen {
		t.Errorf("before a run: got %q, want %q", got, sandboxmcp.GrantOpen)
	}
	if !b.lets(one, "once.example.com") {
		t.Error("got it closed, want it open to the first run")
	}
	if got := status(); got != sandboxmcp.GrantUsed {
		t.Errorf("after a run: got %q, want %q", got, sandboxmcp.GrantUsed)
	}
}

// TestACheckedDecisionChangesNothing: it is accepted or refused like the decision itself, and
// leaves no grant, no answer and no entry.
func TestACheckedDecisionChangesNothing(t *testing.T) {
	b := open(t)
	a := b.ask("api.example.com")
	before := b.record("default")
	for _, d := range []sandboxmcp.AccessDecision{
		{Subject: sandboxmcp.Subject{Domain: "other.example.com"}},
		{ID: a.ID},
		{ID: a.ID, Scope: sandboxmcp.GrantOnce},
		{ID: a.ID, Deny: true},
	} {
		d.Check = true
		_, n, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, d)
		if err != nil || (n == nil) != d.Deny {
			t.Errorf("%+v: got %+v and %v, want it accepted", d, n, err)
		}
	}
	for _, d := range []sandboxmcp.AccessDecision{{Subject: sandboxmcp.Subject{Domain: "*"}}, {Subject: sandboxmcp.Subject{Domain: "a.example.com"}, Scope: "never"}, {ID: "apr_none"}, {ID: a.ID, SHA256: "other"}} {
		d.Check = true
		if _, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default"}, d); err == nil {
			t.Errorf("%+v: got it accepted, want it refused", d)
		}
	}
	l, err := b.List(t.Context(), "default")
	if err != nil || len(l.Granted) != 0 || len(l.Pending) != 1 {
		t.Errorf("got %+v and %v, want no grant and the question still pending", l, err)
	}
	if d := cmp.Diff(before, b.record("default")); d != "" {
		t.Errorf("record (-before +after):\n%s", d)
	}
}

func TestRevoke(t *testing.T) {
	b := open(t, func(c *gate.Config[sandboxmcp.Domain]) { c.Operator = []sandboxmcp.Domain{{Host: "fixed.example.com"}} })
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}, Scope: sandboxmcp.GrantDuration, For: time.Hour})
	if !b.lets(one, "api.example.com") {
		t.Fatal("api.example.com: got it closed, want it open")
	}
	_, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "other", Actor: "cli"}, "api.example.com")
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	done, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "API.example.com")
	if err != nil || done.Revoked != 2 {
		t.Errorf("got %+v, %v", done, err)
	}
	if b.lets(one, "api.example.com") {
		t.Error("api.example.com: got it open, want it closed")
	}
	_, err = b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "api.example.com")
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	_, err = b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "fixed.example.com")
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	if e := sandboxmcp.AsError(err); !strings.Contains(e.Hint, "allowed_domains") {
		t.Errorf("got hint %q, want allowed_domains named", e.Hint)
	}
	if got := b.record("default"); got[len(got)-1] != "approval: revoked api.example.com" {
		t.Errorf("record: %q", got)
	}
}

// Hosts that the operator's settings open need no grant, and hosts that they forbid cannot be
// opened.
func TestSettingsOpenWithoutARecord(t *testing.T) {
	b := open(t, func(c *gate.Config[sandboxmcp.Domain]) { c.Operator = []sandboxmcp.Domain{{Host: "fixed.example.com"}} })
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	closed := gate.New(gate.Config[sandboxmcp.Domain]{Kind: gate.Domains(), Key: secret, Store: b.store, Audit: recordIn(b.store, nil), Operator: []sandboxmcp.Domain{{Host: "fixed.example.com"}}})
	for host, want := range map[sandboxmcp.Host]bool{"fixed.example.com": true, "api.example.com": false} {
		_, ok, err := closed.Allows(t.Context(), one, at(host, 443))
		if ok != want || err != nil {
			t.Errorf("%s: got allowed %t, %v; want the other", host, ok, err)
		}
	}
	_, _, err := closed.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "x.example.com"}})
	wantCode(t, err, sandboxmcp.CodeNetworkDisabled)
	if l, err := closed.List(t.Context(), ""); err != nil || len(l.Granted) != 0 {
		t.Errorf("grants that open nothing: got %+v, %v; want none listed", l, err)
	}
}

func TestCovers(t *testing.T) {
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "*.example.com"}})
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.net:443"}})
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "both.example.net:443"}})
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "both.example.net:80"}})
	for text, want := range map[string]bool{
		"api.example.com": true, "*.api.example.com": true, "api.example.com:80": true, "api.example.com:81": false, "example.com": false,
		"*.example.com": true, "*.example.net": false, "api.example.net:443": true, "api.example.net": false, "both.example.net": true,
	} {
		d, err := sandboxmcp.ParseDomain(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := b.Covers(t.Context(), one, d); got != want || err != nil {
			t.Errorf("%s is covered: %t, %v, want %t", text, got, err, want)
		}
	}
}

func TestParseDomain(t *testing.T) {
	for _, tt := range []struct {
		text string
		port int
		want string
		code sandboxmcp.Code
	}{
		{"api.example.com", 0, "api.example.com", ""},
		{"api.example.com", 443, "api.example.com", ""},
		{"api.example.com", 8443, "api.example.com:8443", ""},
		{"api.example.com:8443", 8443, "api.example.com:8443", ""},
		{"api.example.com:8443", 1, "", sandboxmcp.CodeInvalidArgument},
		{"api.example.com", 70000, "", sandboxmcp.CodeInvalidArgument},
		{"127.0.0.1", 0, "", sandboxmcp.CodeBlockedAddress},
		{"[::1]", 0, "", sandboxmcp.CodeBlockedAddress},
		{"169.254.169.254", 80, "", sandboxmcp.CodeBlockedAddress},
		{"*", 0, "", sandboxmcp.CodeInvalidArgument},
		{"http://api.example.com/", 0, "", sandboxmcp.CodeInvalidArgument},
		{"2130706433", 0, "", sandboxmcp.CodeInvalidArgument},
		{"", 0, "", sandboxmcp.CodeInvalidArgument},
	} {
		d, err := gate.ParseDomain(tt.text, tt.port)
		if sandboxmcp.CodeOf(err) != tt.code || err == nil && d.String() != tt.want {
			t.Errorf("%q and %d: got %s, %v", tt.text, tt.port, d, err)
		}
	}
}

// recordIn is the audit record of a store, without a signer.
// secret is a Config.Key that all gates of a test share.
func secret(purpose string) ([]byte, error) { return []byte("a secret for " + purpose), nil }

func recordIn(s *store.Store, now func() time.Time) *audit.Log {
	l, err := audit.Open(context.Background(), s, audit.Config{Now: now})
	if err != nil {
		panic(err) // only what is signed is looked at
	}
	return l
}
