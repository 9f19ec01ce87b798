package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
)

// doorkeeper is a gate that notes what it was told.
type doorkeeper struct {
	decided []sandboxmcp.EgressDecision
	listed  []sandboxmcp.Namespace
	revoked []string
}

func openUntil() *time.Time {
	t := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	return &t
}

func (g *doorkeeper) Egress(_ context.Context, ns sandboxmcp.Namespace) (sandboxmcp.EgressList, error) {
	g.listed = append(g.listed, ns)
	return sandboxmcp.EgressList{
		Pending:  []sandboxmcp.Approval{{ID: "apr_1", Domain: "a.example.com", Reason: `"why"`, Namespace: "default", Status: sandboxmcp.ApprovalPending, RequestedAt: *openUntil(), ExpiresAt: *openUntil()}},
		Granted:  []sandboxmcp.EgressGrant{{ID: "grt_1", Domain: "b.example.com", Scope: sandboxmcp.GrantDuration, GrantedAt: *openUntil(), ExpiresAt: openUntil()}},
		Operator: []string{"c.example.com"},
	}, nil
}

func (g *doorkeeper) DecideEgress(_ context.Context, d sandboxmcp.EgressDecision) (sandboxmcp.EgressAnswer, error) {
	g.decided = append(g.decided, d)
	if d.ID == "apr_gone" {
		return sandboxmcp.EgressAnswer{}, sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no approval")
	}
	return sandboxmcp.EgressAnswer{Domain: "a.example.com", Approved: !d.Deny, Status: sandboxmcp.ApprovalApproved, ApprovalID: d.ID, ExpiresAt: openUntil()}, nil
}

func (g *doorkeeper) RevokeEgress(_ context.Context, ns sandboxmcp.Namespace, domain, actor string) (sandboxmcp.EgressRevoked, error) {
	g.revoked = append(g.revoked, string(ns)+" "+domain+" "+actor)
	return sandboxmcp.EgressRevoked{Domain: domain, Revoked: 2}, nil
}

func TestEgress(t *testing.T) {
	dir := t.TempDir()
	_, h := listen(t, dir)
	c := peers(t, dir, 1)[0]
	want, _ := (&doorkeeper{}).Egress(t.Context(), "")
	got, err := c.Egress(t.Context(), "")
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("list (-want +got):\n%s%v", d, err)
	}
	if _, err := c.Egress(t.Context(), "a b"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("bad namespace: %v", err)
	}
	for _, d := range []sandboxmcp.EgressDecision{
		{ID: "apr_1"},
		{ID: "apr_1", Deny: true},
		{ID: "apr_1", Scope: sandboxmcp.GrantDuration, For: 90 * time.Minute},
		{Domain: "a.example.com", Namespace: "team", Scope: sandboxmcp.GrantSession, SessionID: "mine"},
	} {
		a, err := c.DecideEgress(t.Context(), d)
		if err != nil || a.Approved == d.Deny || a.ExpiresAt == nil {
			t.Errorf("decide %+v: %+v, %v", d, a, err)
		}
		d.Actor = "cli" // whatever the other side calls itself
		if diff := cmp.Diff(d, h.decided[len(h.decided)-1]); diff != "" {
			t.Errorf("decision (-want +got):\n%s", diff)
		}
	}
	n := len(h.decided)
	for _, bad := range []sandboxmcp.EgressDecision{{}, {ID: "apr_1", Domain: "a.example.com"}, {Domain: "a.example.com"}, {Domain: "a.example.com", Namespace: "a b"}} {
		if _, err := c.DecideEgress(t.Context(), bad); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("decide %+v: %v", bad, err)
		}
	}
	if len(h.decided) != n {
		t.Error("what is no decision was carried out")
	}
	if _, err := c.DecideEgress(t.Context(), sandboxmcp.EgressDecision{ID: "apr_gone"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("unknown: %v", err)
	}
	r, err := c.RevokeEgress(t.Context(), "default", "a.example.com")
	if err != nil || r.Revoked != 2 || h.revoked[0] != "default a.example.com cli" {
		t.Errorf("revoke: %+v, %v, %v", r, err, h.revoked)
	}
}

// Where to a program may go travels with it; without the flag nothing does.
func TestExecuteCarriesDomains(t *testing.T) {
	dir := t.TempDir()
	_, h := listen(t, dir)
	var got sandboxmcp.Request
	h.run = func(_ context.Context, r sandboxmcp.Request) (sandboxmcp.Result, error) {
		got = r
		return sandboxmcp.Result{}, nil
	}
	c := peers(t, dir, 1)[0]
	for _, want := range []sandboxmcp.Request{
		{Namespace: "default", Code: "x", AllowedDomains: []string{"a.example.com"}, GrantDomains: true, Hold: 1500 * time.Millisecond},
		{Namespace: "default", Code: "x"},
	} {
		if _, err := c.Execute(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.AllowedDomains, got.AllowedDomains); d != "" || got.GrantDomains != want.GrantDomains || got.Hold != want.Hold {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
