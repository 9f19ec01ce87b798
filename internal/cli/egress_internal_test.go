package cli

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// fakeEgress is the part of a fake engine that opens and closes domains.
type fakeEgress struct {
	gate    sync.Mutex // guards decided
	refuse  error      // of decisions and of their checks
	breaks  error      // of decisions alone
	decided []sandboxmcp.AccessDecision
	revoked sandboxmcp.AccessRevoked
	closing error // of RevokeEgress
	list    sandboxmcp.AccessList
}

func (f *fakeEgress) DecideEgress(_ context.Context, _ sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	if f.refuse != nil {
		return sandboxmcp.AccessAnswer{}, f.refuse
	}
	if !d.Check {
		if f.breaks != nil {
			return sandboxmcp.AccessAnswer{}, f.breaks
		}
		f.gate.Lock()
		defer f.gate.Unlock()
		f.decided = append(f.decided, d)
	}
	return sandboxmcp.AccessAnswer{Subject: sandboxmcp.Subject{Domain: "a.example.com"}, Approved: !d.Deny, Status: sandboxmcp.ApprovalApproved}, nil
}

func (f *fakeEgress) RevokeEgress(context.Context, sandboxmcp.Caller, string) (sandboxmcp.AccessRevoked, error) {
	return f.revoked, f.closing
}

func (f *fakeEgress) Egress(context.Context, sandboxmcp.Caller) (sandboxmcp.AccessList, error) {
	return f.list, nil
}

// count returns how many decisions the engine carried out.
func (f *fakeEgress) count() int {
	f.gate.Lock()
	defer f.gate.Unlock()
	return len(f.decided)
}

func errOff() error { return sandboxmcp.Errorf(sandboxmcp.CodeNetworkDisabled, "approvals are off") }

func unknownApproval() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no such approval")
}

// TestARefusedDecisionChangesNothing: one server that refuses a domain keeps it closed in all
// of them, whatever their order, and so do the settings of the command.
func TestARefusedDecisionChangesNothing(t *testing.T) {
	for _, order := range []string{"refuses last", "refuses first"} {
		yes, no := &fake{}, &fake{fakeEgress: fakeEgress{refuse: errOff()}}
		env := servers(t, yes, no)
		if order == "refuses first" {
			env = servers(t, no, yes)
		}
		got := (&fake{}).cli(t.Context(), t, env, "egress", "a.example.com")
		if got.status != 3 || !strings.Contains(got.stderr, "network_disabled") || !strings.Contains(got.stderr, "server "+no.id) || yes.count() != 0 {
			t.Errorf("%s: got %+v and %d decisions, want network_disabled of server %s and none", order, got, yes.count(), no.id)
		}
	}
	here, there := &fake{}, &fake{}
	env := append(servers(t, there), "SANDBOXMCP_EGRESS_APPROVALS=false")
	if got := here.cli(t.Context(), t, env, "egress", "a.example.com"); got.status != 3 || here.count()+there.count() != 0 {
		t.Errorf("settings of the command: got %+v, want network_disabled and no decision", got)
	}
	if got := here.cli(t.Context(), t, env, "egress", "deny", "apr_1"); got.status != 0 || there.count() != 1 {
		t.Errorf("deny: got %+v and %d decisions, want it denied all the same", got, there.count())
	}
}

// TestADecisionSaysWhereItHolds: if a server breaks after another one has opened the domain,
// the error names that one; a server with approvals turned off is named.
func TestADecisionSaysWhereItHolds(t *testing.T) {
	first, second := &fake{}, &fake{fakeEgress: fakeEgress{breaks: sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the disk is full")}}
	env := servers(t, first, second)
	got := (&fake{}).cli(t.Context(), t, env, "egress", "a.example.com")
	if want := "server " + second.id + ": the disk is full; it is decided in server " + first.id; got.status != 9 || !strings.Contains(got.stderr, want) {
		t.Errorf("got %+v, want %q", got, want)
	}
	asked, off, other := &fake{}, &fake{fakeEgress: fakeEgress{refuse: errOff()}}, &fake{fakeEgress: fakeEgress{refuse: unknownApproval()}}
	got = (&fake{}).cli(t.Context(), t, servers(t, asked, off, other), "egress", "approve", "apr_1")
	if got.status != 0 || asked.count() != 1 || !strings.Contains(got.stderr, "stays closed in server "+off.id) {
		t.Errorf("approve: got %+v, want it approved and server %s named", got, off.id)
	}
	if got = (&fake{}).cli(t.Context(), t, servers(t, off), "egress", "approve", "apr_1"); got.status != 3 {
		t.Errorf("approve where approvals are off: got %+v, want network_disabled", got)
	}
}

func TestRevokeClosesInEveryServer(t *testing.T) {
	has := func() *fake {
		return &fake{fakeEgress: fakeEgress{revoked: sandboxmcp.AccessRevoked{Subject: sandboxmcp.Subject{Domain: "a.example.com"}, Revoked: 1}}}
	}
	without := &fake{fakeEgress: fakeEgress{closing: unknownApproval()}}
	for _, env := range [][]string{servers(t, has(), without), servers(t, without, has())} {
		got := (&fake{}).cli(t.Context(), t, env, "egress", "revoke", "a.example.com")
		var done sandboxmcp.AccessRevoked
		if err := json.Unmarshal([]byte(got.stdout), &done); err != nil || done.Domain != "a.example.com" || done.Revoked != 1 {
			t.Errorf("got %+v, want the domain and one grant", got)
		}
	}
	broken, last := &fake{fakeEgress: fakeEgress{closing: sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the disk is full")}}, has()
	got := (&fake{}).cli(t.Context(), t, servers(t, broken, last), "egress", "revoke", "a.example.com")
	if got.status != 9 || !strings.Contains(got.stderr, "it is revoked in server "+last.id) {
		t.Errorf("got %+v, want the failure and that server %s closed it", got, last.id)
	}
}
