package gateway

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

// Question is a caller's request to open a domain.
type Question struct {
	Answer   sandboxmcp.EgressAnswer // the answer so far
	Answered bool                    // no person needs to be asked

	caller sandboxmcp.Caller
	ask    sandboxmcp.EgressAsk
	domain sandboxmcp.Domain
	who    gate.Who
}

// unborn is the request id for a run that does not exist yet, so that a grant for one run covers
// it.
const unborn sandboxmcp.RequestID = "?"

// Question prepares the request to open a domain to the programs of a namespace. A domain that is
// already open is approved at once. If approvals are turned off, any other domain is denied. If a
// domain cannot be opened, Question fails with invalid_argument or blocked_address.
func (e *Egress) Question(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.EgressAsk) (Question, error) {
	d, err := gate.ParseDomain(ask.Domain, ask.Port)
	if err != nil {
		return Question{}, err
	}
	q := Question{
		Answer: sandboxmcp.EgressAnswer{Domain: d.String(), Status: sandboxmcp.ApprovalDenied},
		caller: c, ask: ask, domain: d, who: gate.Who{Namespace: c.Namespace, SessionID: ask.SessionID, RequestID: unborn},
	}
	open, expires, err := e.gate.Covers(ctx, q.who, d)
	switch {
	case err != nil:
		return q, err
	case open:
		q.Answered = true
		q.Answer.Approved, q.Answer.Status, q.Answer.ExpiresAt = true, sandboxmcp.ApprovalApproved, expires
	case e.cfg.NoAsking:
		q.Answered = true
		q.Answer.HowToApprove = "approvals are turned off by the operator (egress_approvals); only the domains of the settings are open"
	}
	return q, nil
}

// Ask asks a person an unanswered question, and waits up to the Wait of its EgressAsk for the
// answer. masks finds the secrets of the namespace and the session. If too many approvals are
// pending, Ask fails with queue_full. If ctx ends, it fails with cancelled.
func (e *Egress) Ask(ctx context.Context, q Question, masks *redact.Masker) (sandboxmcp.EgressAnswer, error) {
	a, err := e.ask(ctx, masks, q.caller, q.ask)
	if err != nil {
		return q.Answer, err
	}
	if q.ask.Wait > 0 && a.Status == sandboxmcp.ApprovalPending {
		wait, cancel := context.WithTimeout(ctx, q.ask.Wait)
		defer cancel()
		a, err = e.gate.Wait(wait, a.ID, func() bool {
			now, _, failed := e.gate.Covers(ctx, q.who, q.domain)
			return failed == nil && now
		})
		if err != nil {
			return q.Answer, err
		}
		if ctx.Err() != nil {
			return q.Answer, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the request was cancelled before it ran").WithCause(context.Cause(ctx))
		}
	}
	return e.answer(ctx, q, a)
}

// answer describes the state of an approval to the caller that requested it.
func (e *Egress) answer(ctx context.Context, q Question, a sandboxmcp.Approval) (sandboxmcp.EgressAnswer, error) {
	answer := sandboxmcp.EgressAnswer{Domain: q.domain.String(), Status: a.Status, ApprovalID: a.ID}
	open, expires, err := e.gate.Covers(ctx, q.who, q.domain)
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
func (e *Egress) approvedElse(ctx context.Context, a sandboxmcp.Approval, answer sandboxmcp.EgressAnswer) (sandboxmcp.EgressAnswer, error) {
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

// ask requests an approval. If the approval is new, it emits an event. It masks secrets in the
// reason before the reason is shown or stored. It refuses a domain that contains a secret, because
// the person would read it.
func (e *Egress) ask(ctx context.Context, masks *redact.Masker, c sandboxmcp.Caller, ask sandboxmcp.EgressAsk) (sandboxmcp.Approval, error) {
	if err := masks.Plain("the domain", ask.Domain); err != nil {
		return sandboxmcp.Approval{}, err
	}
	ask.Reason = masks.Text(ask.Reason)
	a, fresh, err := e.gate.Request(ctx, c, ask)
	if fresh {
		e.emit(sandboxmcp.EventEgressRequested, a.Namespace, a.Domain+" was asked for", map[string]any{"domain": a.Domain, "approval_id": a.ID, "expires_at": a.ExpiresAt})
	}
	return a, err
}

// Decide applies a person's decision: it answers an approval, or opens a domain that was not
// requested. The audit entry is written in the same transaction, so a decision that cannot be
// recorded has no effect. Afterwards Decide emits an event.
func (e *Egress) Decide(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.EgressDecision) (sandboxmcp.EgressAnswer, error) {
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

func (e *Egress) emit(t sandboxmcp.EventType, ns sandboxmcp.Namespace, message string, data map[string]any) {
	e.cfg.Events.Emit(sandboxmcp.Event{Type: t, Namespace: ns, Message: message, Data: data})
}

// Find returns an approval and its state. An empty namespace means all. It fails with
// request_not_found.
func (e *Egress) Find(ctx context.Context, ns sandboxmcp.Namespace, id string) (sandboxmcp.Approval, error) {
	return e.gate.Find(ctx, ns, id)
}

// Revoke closes a domain that persons opened in one namespace. Grants of other domains,
// such as a wildcard above it, stay. It fails with request_not_found if there is no such
// grant.
func (e *Egress) Revoke(ctx context.Context, c sandboxmcp.Caller, domain string) (sandboxmcp.EgressRevoked, error) {
	return e.gate.Revoke(ctx, c, domain)
}

// List lists pending approvals and grants. An empty namespace means all.
func (e *Egress) List(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.EgressList, error) {
	return e.gate.List(ctx, ns)
}

// State returns the open domains and pending approvals of a namespace. If id is not empty,
// grants for the session of that id, made at born, count too.
func (e *Egress) State(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, born time.Time) (sandboxmcp.EgressState, error) {
	st := NoState()
	open, err := e.gate.Open(ctx, gate.Who{Namespace: ns, SessionID: id, Born: born, RequestID: unborn})
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
