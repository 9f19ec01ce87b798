package gateway

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

// Question prepares the request to open a domain to the programs of a namespace. A domain that is
// already open is approved at once. If approvals are turned off, any other domain is denied. If a
// domain cannot be opened, Question fails with invalid_argument or blocked_address. born is when the
// session was made. backend is that of the session, or of runs without one.
func (e *Egress) Question(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.EgressAsk, born time.Time, backend string) (gate.Question[sandboxmcp.Domain], error) {
	d, err := gate.ParseDomain(ask.Domain, ask.Port)
	if err != nil {
		return gate.Question[sandboxmcp.Domain]{}, err
	}
	return e.gate.Question(ctx, c, d, gate.Ask{Reason: ask.Reason, SessionID: ask.SessionID, Born: born, RequestID: ask.RequestID, Apart: !e.rules.Load().opens(backend)})
}

// Ask asks a person an unanswered question, and waits up to the given time for the answer. masks
// finds the secrets of the namespace and the session. If too many approvals are pending, Ask fails
// with queue_full. If ctx ends, it fails with cancelled.
func (e *Egress) Ask(ctx context.Context, q gate.Question[sandboxmcp.Domain], masks *redact.Masker, wait time.Duration) (sandboxmcp.AccessAnswer, error) {
	return e.gate.Ask(ctx, q, masks, wait)
}

// Decide applies a person's decision: it answers an approval, or opens a domain that was not
// requested. The audit entry is written in the same transaction, so a decision that cannot be
// recorded has no effect. Afterwards Decide emits an event. With d.Check it only says what it would
// do.
func (e *Egress) Decide(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	answer, _, err := e.gate.Decide(ctx, c, d)
	return answer, err
}

// Find returns an approval and its state. An empty namespace means all. It fails with
// request_not_found.
func (e *Egress) Find(ctx context.Context, ns sandboxmcp.Namespace, id string) (sandboxmcp.Approval, error) {
	return e.gate.Find(ctx, ns, id)
}

// Revoke closes a domain that persons opened in one namespace. Grants of other domains,
// such as a wildcard above it, stay. It fails with request_not_found if there is no such
// grant.
func (e *Egress) Revoke(ctx context.Context, c sandboxmcp.Caller, domain string) (sandboxmcp.AccessRevoked, error) {
	return e.gate.Revoke(ctx, c, domain)
}

// List lists pending approvals and grants. An empty namespace means all.
func (e *Egress) List(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.AccessList, error) {
	return e.gate.List(ctx, ns)
}

// State returns the open domains and pending approvals of a namespace. If id is not empty,
// grants for the session of that id, made at born, count too. backend is that of the session, or of runs
// without one.
func (e *Egress) State(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, born time.Time, backend string) (sandboxmcp.EgressState, error) {
	st := NoState()
	open, err := e.gate.Open(ctx, e.who(policy{who: gate.Unborn(ns, id, born), backend: backend}))
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

// NoState is the state of a session without a network.
func NoState() sandboxmcp.EgressState {
	return sandboxmcp.EgressState{Allowed: []string{}, Pending: []sandboxmcp.Approval{}}
}
