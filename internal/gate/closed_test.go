package gate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

// No audit, no act: what cannot be recorded is not opened, not denied and not
// closed.
func TestNothingChangesWithoutARecord(t *testing.T) {
	b := open(t)
	a := b.ask("api.example.com")
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "open.example.com"}})
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "once.example.com"}, Scope: sandboxmcp.GrantOnce})
	storetest.Refuse(t, b.dir)
	for name, act := range map[string]func() error{
		"approve": func() error {
			_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace}, sandboxmcp.AccessDecision{ID: a.ID})
			return err
		},
		"deny": func() error {
			_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace}, sandboxmcp.AccessDecision{ID: a.ID, Deny: true})
			return err
		},
		"open": func() error {
			_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "new.example.com"}})
			return err
		},
		"revoke": func() error {
			_, err := b.Revoke(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, "open.example.com")
			return err
		},
		"ask": func() error {
			_, _, err := b.Request(t.Context(), sandboxmcp.Caller{Namespace: "default"}, site(t, "new.example.com"), gate.Ask{})
			return err
		},
		"use once": func() error {
			_, ok, err := b.Allows(t.Context(), one, at("once.example.com", 443))
			if ok {
				t.Error("a use that cannot be recorded: got it allowed, want it refused")
			}
			return err
		},
	} {
		if err := act(); err == nil {
			t.Errorf("%s that cannot be recorded: got no error, want a refusal", name)
		}
	}
	if b.lets(one, "api.example.com") || b.lets(one, "new.example.com") || !b.lets(one, "open.example.com") {
		t.Error("grants after acts that could not be recorded: got a change, want none")
	}
	if got, err := b.Find(t.Context(), "", a.ID); err != nil || got.Status != sandboxmcp.ApprovalPending {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A grant that was written or changed in the database, without the gate, opens nothing.
func TestAChangedRowOpensNothing(t *testing.T) {
	b := open(t)
	b.grant(sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}})
	a := b.ask("asked.example.com")
	for _, q := range []string{
		`UPDATE grants SET subject = replace(subject, 'api.', 'evil.')`,
		`UPDATE approvals SET subject = replace(subject, 'asked.', 'evil.')`,
	} {
		storetest.Tamper(t, b.dir, q)
	}
	fresh := gate.New(gate.Config[sandboxmcp.Domain]{Kind: gate.Domains(), Key: secret, Store: b.store, Audit: recordIn(b.store, nil), Approvals: true})
	for _, host := range []sandboxmcp.Host{"api.example.com", "evil.example.com"} {
		if _, ok, err := fresh.Allows(t.Context(), one, at(host, 443)); ok || err != nil {
			t.Errorf("%s: got allowed %t, %v; want it refused", host, ok, err)
		}
	}
	// To open it again, a person gets a grant that opens it, and not the changed one.
	if _, n, err := fresh.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.example.com"}}); err != nil || n.Domain != "api.example.com" {
		t.Errorf("opened again: got %+v, %v, want a grant for api.example.com", n, err)
	}
	if _, ok, err := fresh.Allows(t.Context(), one, at("api.example.com", 443)); !ok || err != nil {
		t.Errorf("opened again: got open %t, %v, want true", ok, err)
	}
	_, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace}, sandboxmcp.AccessDecision{ID: a.ID})
	wantCode(t, err, sandboxmcp.CodeAccessDenied)
	_, _, err = b.Decide(t.Context(), sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace}, sandboxmcp.AccessDecision{ID: b.ask("other.example.com").ID, SHA256: a.SHA256})
	wantCode(t, err, sandboxmcp.CodeAccessDenied)
}

// A decision of another process holds in this one, wakes those that wait for it, and a grant
// that it revokes is closed.
func TestDecisionsHoldInEveryProcess(t *testing.T) {
	b := open(t)
	if b.lets(one, "api.example.com") {
		t.Fatal("api.example.com: got it open, want it closed")
	}
	a := b.ask("api.example.com")
	done := make(chan sandboxmcp.Approval, 1)
	go func() {
		got, err := b.Wait(t.Context(), a.ID, func() bool { return false })
		if err != nil {
			t.Error(err)
		}
		done <- got
	}()
	b.set(time.Now()) // the other process has the machine's
	a2 := b.ask("second.example.com")
	inAnotherProcess(t, b.dir, "approve", a2.ID)
	if !b.lets(one, "second.example.com") {
		t.Error("a host that another process opened: got it closed here, want it open")
	}
	inAnotherProcess(t, b.dir, "revoke", "second.example.com")
	if b.lets(one, "second.example.com") {
		t.Error("a host that another process closed: got it open here, want it closed")
	}
	inAnotherProcess(t, b.dir, "open", "*.example.net")
	if !b.lets(one, "a.example.net") {
		t.Error("a host that another process opened: got it closed here, want it open")
	}
	b.set(time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC))
	inAnotherProcess(t, b.dir, "deny", a.ID)
	if got := <-done; got.Status != sandboxmcp.ApprovalDenied {
		t.Errorf("who waited heard %+v", got)
	}
}

func TestWaitEndsWithItsContextOrWhenOpen(t *testing.T) {
	b := open(t)
	a := b.ask("api.example.com")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := b.Wait(ctx, a.ID, func() bool { return false }); err != nil || got.Status != sandboxmcp.ApprovalPending {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := b.Wait(t.Context(), a.ID, func() bool { return true }); err != nil || got.Status != sandboxmcp.ApprovalPending {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err := b.Wait(t.Context(), "apr_nobody", func() bool { return false })
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
}

func TestQuestionsAreBounded(t *testing.T) {
	b := open(t)
	var last error
	asked := 0
	for i := range 100 {
		if i%20 == 19 {
			b.pass(time.Minute)
		}
		if _, _, last = b.Request(t.Context(), sandboxmcp.Caller{Namespace: "default"}, site(t, fmt.Sprintf("a%d.example.com", i)), gate.Ask{}); last == nil {
			asked++
		}
	}
	wantCode(t, last, sandboxmcp.CodeQueueFull)
	if asked != 32 {
		t.Errorf("%d questions wait at once, want 32", asked)
	}
	if n := strings.Count(b.notices.String(), "\a"); n == 0 || n > 32 {
		t.Errorf("bells: got %d, want 1 to 32", n)
	}
	quick := open(t)
	for i := range 40 {
		a, _, err := quick.Request(t.Context(), sandboxmcp.Caller{Namespace: "default"}, site(t, fmt.Sprintf("a%d.example.com", i)), gate.Ask{})
		if last = err; err == nil {
			_, _, _ = quick.Decide(t.Context(), sandboxmcp.Caller{Namespace: sandboxmcp.EveryNamespace}, sandboxmcp.AccessDecision{ID: a.ID, Deny: true})
		}
	}
	wantCode(t, last, sandboxmcp.CodeQueueFull)
	quick.pass(-24 * time.Hour) // a clock that was set back does not make the minute a day
	if _, _, err := quick.Request(t.Context(), sandboxmcp.Caller{Namespace: "default"}, site(t, "b.example.com"), gate.Ask{}); err != nil {
		t.Errorf("after the clock was set back: got %v, want a question", err)
	}
}

// TestGrantsEndWhenTheClockIsSetBack: a grant that has an end is not in force before it was
// made. Otherwise it would hold for as long as the clock was set back.
func TestGrantsEndWhenTheClockIsSetBack(t *testing.T) {
	b := open(t)
	for domain, d := range map[string]sandboxmcp.AccessDecision{
		"hour.example.com":   {Scope: sandboxmcp.GrantDuration, For: time.Hour},
		"always.example.com": {Scope: sandboxmcp.GrantAlways},
	} {
		d.Domain = domain
		if _, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, d); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		pass         time.Duration
		hour, always bool
	}{{0, true, true}, {-30 * time.Second, true, true}, {-24 * time.Hour, false, true}, {24*time.Hour + time.Minute, true, true}, {time.Hour, false, true}} {
		b.pass(tt.pass)
		for domain, want := range map[sandboxmcp.Host]bool{"hour.example.com": tt.hour, "always.example.com": tt.always} {
			if _, got, err := b.Allows(t.Context(), gate.Who{Namespace: "default", RequestID: "r"}, at(domain, 443)); got != want || err != nil {
				t.Errorf("%s after %v: got open %v, %v, want %v", domain, tt.pass, got, err, want)
			}
			list, err := b.List(t.Context(), "default")
			if got := slices.ContainsFunc(list.Granted, func(n sandboxmcp.AccessGrant) bool { return n.Domain == string(domain) }); got != want || err != nil {
				t.Errorf("%s after %v: got listed %v, %v, want %v", domain, tt.pass, got, err, want)
			}
		}
	}
	// A person can open it again, and a model can ask for it.
	b.pass(-24 * time.Hour)
	if a, fresh, err := b.Request(t.Context(), sandboxmcp.Caller{Namespace: "default"}, site(t, "hour.example.com"), gate.Ask{}); !fresh || err != nil {
		t.Errorf("got %+v, %v, want a new question", a, err)
	}
	again := sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "hour.example.com"}, Scope: sandboxmcp.GrantDuration, For: time.Hour}
	if _, _, err := b.Decide(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "cli"}, again); err != nil {
		t.Fatal(err)
	}
	if _, got, err := b.Allows(t.Context(), gate.Who{Namespace: "default", RequestID: "r"}, at("hour.example.com", 443)); !got || err != nil {
		t.Errorf("after it was opened again: got open %v, %v, want true", got, err)
	}
}

// What a model writes reaches a terminal as one quoted line, and the record not
// at all.
func TestReasonsAreQuotedAndNotRecorded(t *testing.T) {
	b := open(t)
	evil := "\x1b[2Japproved by admin\n\asandboxmcp: ok \u202egnp.exe\u201d" + strings.Repeat("\u3164\u2800\u115f", 10) + "line \U000e0141 " + strings.Repeat("long ", 400)
	a, fresh, err := b.Request(t.Context(), sandboxmcp.Caller{Namespace: "default", Actor: "mcp"}, site(t, "api.example.com"), gate.Ask{Reason: evil})
	if err != nil || !fresh {
		t.Fatal(fresh, err)
	}
	line := b.notices.String()
	if strings.Count(line, "\n") != 1 || strings.Count(line, "\a") != 1 || strings.ContainsAny(line, "\x1b\u202e\u3164\u2800\u115f\U000e0141") || len(line) > 700 {
		t.Errorf("notice: got %q, want one line with one bell and no other control characters", line)
	}
	if !strings.Contains(line, "`sandboxmcp egress approve "+a.ID+"`") || !strings.Contains(line, `the model says "`) {
		t.Errorf("notice: got %q, want the command that approves, and the model's words marked as such", line)
	}
	if strings.ContainsAny(a.Reason, "\x1b\n\a\u202e") || len(a.Reason) > 500 || !strings.HasPrefix(a.Reason, `"`) {
		t.Errorf("reason: got %q, want it quoted, bounded and free of control characters", a.Reason)
	}
	page, err := recordIn(b.store, nil).List(t.Context(), "default", sandboxmcp.AuditQuery{})
	all := page.Entries
	if err != nil || len(all) != 1 || strings.Contains(fmt.Sprint(all[0]), "admin") {
		t.Errorf("record: got %v, %v; want one entry without the model's words", all, err)
	}
}
