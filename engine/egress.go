package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
)

// openGate makes the gate, which decides which hosts programs may reach, and the proxy,
// which connects to them.
func (e *Engine) openGate() {
	c := e.cfg
	var operator []sandboxmcp.Domain
	if c.Network {
		operator = c.Operator
	}
	e.gate = gate.New(gate.Config{Store: e.store, Audit: e.audit, Operator: operator, Approvals: !c.NoAsking, Now: c.Now, Notices: c.Notices, Logger: c.Logger})
	e.proxy = egress.New(egress.Config{Logger: c.Logger, Private: c.Private, Resolve: c.Detours, DNS: c.Resolver, Now: c.Now})
}

// RequestEgress asks a person to open a domain to the programs of a namespace. It waits
// up to ask.Wait for the answer. A domain that is already open is approved at once. If
// approvals are turned off, any other domain is denied. It fails with invalid_argument or
// blocked_address for a domain that cannot be opened, and with queue_full if too many
// approvals are pending.
func (e *Engine) RequestEgress(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.EgressAsk) (sandboxmcp.EgressAnswer, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.EgressAnswer{}, err
	}
	d, err := gate.ParseDomain(ask.Domain, ask.Port)
	if err != nil {
		return sandboxmcp.EgressAnswer{}, err
	}
	answer := sandboxmcp.EgressAnswer{Domain: d.String(), Status: sandboxmcp.ApprovalDenied}
	who := gate.Who{Namespace: c.Namespace, SessionID: ask.SessionID, RequestID: unborn}
	open, expires, err := e.gate.Covers(ctx, who, d)
	switch {
	case err != nil:
		return answer, err
	case open:
		answer.Approved, answer.Status, answer.ExpiresAt = true, sandboxmcp.ApprovalApproved, expires
		return answer, nil
	case e.cfg.NoAsking:
		answer.HowToApprove = "approvals are turned off by the operator (egress_approvals); only the domains of the settings are open"
		return answer, nil
	}
	a, err := e.ask(ctx, c, ask)
	if err != nil {
		return answer, err
	}
	if ask.Wait > 0 && a.Status == sandboxmcp.ApprovalPending {
		wait, cancel := context.WithTimeout(ctx, ask.Wait)
		defer cancel()
		a, err = e.gate.Wait(wait, a.ID, func() bool {
			now, _, failed := e.gate.Covers(ctx, who, d)
			return failed == nil && now
		})
		if err != nil {
			return answer, err
		}
		if ctx.Err() != nil {
			return answer, cancelledError(ctx)
		}
	}
	return e.egressAnswer(ctx, who, d, a)
}

// unborn stands for a run that has not been requested yet, so that a grant for one run
// covers it.
const unborn sandboxmcp.RequestID = "?"

// egressAnswer describes the state of an approval to the caller that asked for it.
func (e *Engine) egressAnswer(ctx context.Context, who gate.Who, d sandboxmcp.Domain, a sandboxmcp.Approval) (sandboxmcp.EgressAnswer, error) {
	answer := sandboxmcp.EgressAnswer{Domain: d.String(), Status: a.Status, ApprovalID: a.ID}
	open, expires, err := e.gate.Covers(ctx, who, d)
	if err != nil {
		return answer, err
	}
	switch {
	case open:
		answer.Approved, answer.Status, answer.ExpiresAt = true, sandboxmcp.ApprovalApproved, expires
	case a.Status == sandboxmcp.ApprovalApproved:
		return e.approvedElse(ctx, a, answer)
	case a.Status == sandboxmcp.ApprovalDenied:
		answer.HowToApprove = howAfterAll(a)
	default:
		answer.Status = sandboxmcp.ApprovalPending
		at := a.ExpiresAt
		answer.ExpiresAt = &at
		answer.HowToApprove = "a person runs `sandboxmcp egress approve " + a.ID + "` in a terminal of the machine that this server runs on; call request_egress again afterwards, or run the code again. " +
			"`sandboxmcp egress list` shows what is pending"
	}
	return answer, nil
}

// approvedElse describes an approval that does not open the domain to the whole
// namespace: its grant is for one session or one run, or was revoked.
func (e *Engine) approvedElse(ctx context.Context, a sandboxmcp.Approval, answer sandboxmcp.EgressAnswer) (sandboxmcp.EgressAnswer, error) {
	list, err := e.gate.List(ctx, a.Namespace)
	if err != nil {
		return answer, err
	}
	for _, n := range list.Granted {
		if n.ApprovalID == a.ID {
			answer.Approved, answer.ExpiresAt = true, n.ExpiresAt
			if n.Scope == sandboxmcp.GrantSession {
				answer.HowToApprove = "it is open to session " + string(n.SessionID) + " only"
			}
			if n.Scope == sandboxmcp.GrantOnce {
				answer.HowToApprove = "it was opened for one run, which has begun"
			}
			return answer, nil
		}
	}
	answer.Status = sandboxmcp.ApprovalDenied
	answer.HowToApprove = "it was approved and is closed again; ask again if it is needed"
	return answer, nil
}

// howAfterAll says how a person can open a domain that was denied.
func howAfterAll(a sandboxmcp.Approval) string {
	command := a.Domain
	if a.Namespace != sandboxmcp.DefaultNamespace {
		command += " --namespace " + string(a.Namespace)
	}
	return "a person denied it; talk to them before you ask again. They can still open it with `sandboxmcp egress " + command + "`"
}

// FindEgress returns an approval and its state. It fails with request_not_found.
func (e *Engine) FindEgress(ctx context.Context, c sandboxmcp.Caller, id string) (sandboxmcp.Approval, error) {
	return e.gate.Find(ctx, e.listed(c), id)
}

// DecideEgress carries out a decision of a person: it answers an approval, or opens a
// domain that was not asked for. The audit entry is written in the same transaction, so a
// decision that cannot be recorded has no effect. An MCP tool may call it only with an
// answer that the client got from a person.
func (e *Engine) DecideEgress(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.EgressDecision) (sandboxmcp.EgressAnswer, error) {
	if c.Namespace != sandboxmcp.EveryNamespace || d.ID == "" {
		var err error
		if c, err = e.caller(c); err != nil {
			return sandboxmcp.EgressAnswer{}, err
		}
	} else if c.Actor == "" {
		c.Actor = e.cfg.Actor
	}
	a, n, err := e.gate.Decide(ctx, c, d)
	if err != nil {
		return sandboxmcp.EgressAnswer{}, err
	}
	if n == nil {
		e.emit(sandboxmcp.EventEgressDenied, a.Namespace, a.Domain+" was denied", map[string]any{"domain": a.Domain, "approval_id": a.ID})
		return sandboxmcp.EgressAnswer{Domain: a.Domain, Status: sandboxmcp.ApprovalDenied, ApprovalID: a.ID, HowToApprove: howAfterAll(a)}, nil
	}
	e.emit(sandboxmcp.EventEgressApproved, n.Namespace, n.Domain+" was opened", map[string]any{"domain": n.Domain, "approval_id": n.ApprovalID, "scope": n.Scope})
	return sandboxmcp.EgressAnswer{Domain: n.Domain, Approved: true, Status: sandboxmcp.ApprovalApproved, ApprovalID: n.ApprovalID, ExpiresAt: n.ExpiresAt}, nil
}

// RevokeEgress closes a domain that persons opened in one namespace. Grants of other
// domains, such as a wildcard above it, stay. It fails with request_not_found if there is
// no such grant.
func (e *Engine) RevokeEgress(ctx context.Context, c sandboxmcp.Caller, domain string) (sandboxmcp.EgressRevoked, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.EgressRevoked{}, err
	}
	return e.gate.Revoke(ctx, c, domain)
}

// Egress lists pending approvals and grants. It accepts EveryNamespace.
func (e *Engine) Egress(ctx context.Context, c sandboxmcp.Caller) (sandboxmcp.EgressList, error) {
	return e.gate.List(ctx, e.listed(c))
}

// egressState returns the open domains and pending approvals of a namespace. If id is a
// live session, grants for that session count too.
func (e *Engine) egressState(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (sandboxmcp.EgressState, error) {
	st := sandboxmcp.EgressState{Allowed: []string{}, Pending: []sandboxmcp.Approval{}}
	who := gate.Who{Namespace: ns, RequestID: unborn}
	if s, err := e.sessions.Find(ctx, ns, id); id != "" && err == nil {
		if r, ok := s.Room().(*liveSession); ok && r.offline {
			return st, nil
		}
		who.SessionID, who.Born = id, s.Info().CreatedAt
	}
	open, err := e.gate.Open(ctx, who)
	if err != nil {
		return st, err
	}
	st.Allowed = texts(open)
	l, err := e.gate.List(ctx, ns)
	if err != nil {
		return st, err
	}
	st.Pending = l.Pending
	return st, nil
}

// ask requests an approval, and emits an event if the approval is new. It masks secrets
// in the reason before the reason is shown or stored. It refuses a domain that contains a
// secret, because the person would read it.
func (e *Engine) ask(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.EgressAsk) (sandboxmcp.Approval, error) {
	masks, err := e.masks(ctx, c.Namespace, ask.SessionID)
	if err != nil {
		return sandboxmcp.Approval{}, err
	}
	if key := masks.Find([]byte(ask.Domain)); key != "" {
		return sandboxmcp.Approval{}, holdsSecret("the domain", key)
	}
	ask.Reason = masks.Text(ask.Reason)
	a, fresh, err := e.gate.Request(ctx, c, ask)
	if fresh {
		e.emitAsked(a)
	}
	return a, err
}

func (e *Engine) emitAsked(a sandboxmcp.Approval) {
	e.emit(sandboxmcp.EventEgressRequested, a.Namespace, a.Domain+" was asked for", map[string]any{"domain": a.Domain, "approval_id": a.ID, "expires_at": a.ExpiresAt})
}
