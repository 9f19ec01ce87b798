package gate

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// unborn is the request id for a run that does not exist yet, so that a grant for one run covers
// it.
const unborn sandboxmcp.RequestID = "?"

// Unborn returns the [Who] of the next run of a namespace, perhaps in a session.
func Unborn(ns sandboxmcp.Namespace, id sandboxmcp.SessionID, born time.Time) Who {
	return Who{Namespace: ns, SessionID: id, Born: born, RequestID: unborn}
}

// Question is a caller's request to open a subject.
type Question[S Subject[S]] struct {
	Answer   sandboxmcp.AccessAnswer // the answer so far
	Answered bool                    // no person needs to be asked

	caller  sandboxmcp.Caller
	ask     Ask
	subject S
	who     Who
}

// Question prepares the request to open a subject to a namespace. A subject that is already open
// is approved at once. If approvals are turned off, any other subject is denied.
func (g *Gate[S]) Question(ctx context.Context, c sandboxmcp.Caller, s S, ask Ask) (Question[S], error) {
	q := Question[S]{
		Answer: sandboxmcp.AccessAnswer{Subject: g.kind.subject(s), Status: sandboxmcp.ApprovalDenied},
		caller: c, ask: ask, subject: s, who: Unborn(c.Namespace, ask.SessionID, ask.Born),
	}
	q.who.Apart = ask.Apart
	open, expires, err := g.Covers(ctx, q.who, s)
	switch {
	case err != nil:
		return q, err
	case open:
		q.Answered = true
		q.Answer.Approved, q.Answer.Status, q.Answer.ExpiresAt = true, sandboxmcp.ApprovalApproved, expires
	case !g.asking.Load():
		q.Answered = true
		q.Answer.HowToApprove = g.kind.OffHow
	}
	return q, nil
}

// Masks masks the secrets of a namespace.
type Masks interface {
	// Plain refuses a text that contains a secret.
	Plain(what, text string) error
	// Text returns a text with secrets masked.
	Text(s string) string
}

// RequestMasked is [Gate.Request] with secrets masked in the reason. It refuses a subject that
// contains a secret, because the person would read it.
func (g *Gate[S]) RequestMasked(ctx context.Context, masks Masks, c sandboxmcp.Caller, s S, ask Ask) (sandboxmcp.Approval, error) {
	if err := masks.Plain("the "+g.kind.Noun, s.String()); err != nil {
		return sandboxmcp.Approval{}, err
	}
	ask.Reason = masks.Text(ask.Reason)
	a, _, err := g.Request(ctx, c, s, ask)
	return a, err
}

// Ask asks a person an unanswered question, and waits up to the given time for the answer; 0: it
// does not wait. masks finds the secrets of the namespace and the session. If too many approvals
// are pending, Ask fails with queue_full. If ctx ends, it fails with cancelled.
func (g *Gate[S]) Ask(ctx context.Context, q Question[S], masks Masks, wait time.Duration) (sandboxmcp.AccessAnswer, error) {
	a, err := g.RequestMasked(ctx, masks, q.caller, q.subject, q.ask)
	if err != nil {
		return q.Answer, err
	}
	if wait > 0 && a.Status == sandboxmcp.ApprovalPending {
		waiting, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		a, err = g.Wait(waiting, a.ID, func() bool {
			now, _, failed := g.Covers(ctx, q.who, q.subject)
			return failed == nil && now
		})
		if err != nil {
			return q.Answer, err
		}
		if ctx.Err() != nil {
			return q.Answer, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the request was cancelled before it ran").WithCause(context.Cause(ctx))
		}
	}
	return g.explain(ctx, q, a)
}

// explain describes the state of an approval to the caller that requested it.
func (g *Gate[S]) explain(ctx context.Context, q Question[S], a sandboxmcp.Approval) (sandboxmcp.AccessAnswer, error) {
	answer := sandboxmcp.AccessAnswer{Subject: g.kind.subject(q.subject), Status: a.Status, ApprovalID: a.ID}
	open, expires, err := g.Covers(ctx, q.who, q.subject)
	if err != nil {
		return answer, err
	}
	switch {
	case open:
		answer.Approved, answer.Status, answer.ExpiresAt = true, sandboxmcp.ApprovalApproved, expires
	case a.Status == sandboxmcp.ApprovalApproved:
		return g.approvedElse(ctx, a, answer)
	case a.Status == sandboxmcp.ApprovalDenied:
		answer.HowToApprove = g.howAfterAll(a)
	default:
		answer.Status = sandboxmcp.ApprovalPending
		at := a.ExpiresAt
		answer.ExpiresAt = &at
		answer.HowToApprove = "to allow " + q.subject.String() + ", a person runs `" + g.cfg.Invocation.Line(g.kind.Command+" approve "+a.ID) + "` in a terminal of the machine that this server runs on; ask again afterwards, or " + g.kind.Retry + ". " +
			"`" + g.cfg.Invocation.Line(g.kind.Command+" list") + "` shows what is pending"
	}
	return answer, nil
}

// approvedElse describes an approval that does not open the subject to the whole
// namespace: its grant is for one session or one run, or was revoked.
func (g *Gate[S]) approvedElse(ctx context.Context, a sandboxmcp.Approval, answer sandboxmcp.AccessAnswer) (sandboxmcp.AccessAnswer, error) {
	list, err := g.List(ctx, a.Namespace)
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

// howAfterAll says how a person can open a subject that was denied.
func (g *Gate[S]) howAfterAll(a sandboxmcp.Approval) string {
	command := g.kind.Grant(g.kind.text(a.Subject))
	if a.Namespace != sandboxmcp.DefaultNamespace {
		command += " --namespace " + string(a.Namespace)
	}
	return "a person denied it; talk to them before you ask again. They can still open it with `" + g.cfg.Invocation.Line(command) + "`"
}

// Decide carries out a person's decision, as decide does, and then emits an event.
func (g *Gate[S]) Decide(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, *sandboxmcp.AccessGrant, error) {
	a, n, err := g.decide(ctx, c, d)
	if err != nil {
		return sandboxmcp.AccessAnswer{}, nil, err
	}
	if n == nil {
		answer := sandboxmcp.AccessAnswer{Subject: a.Subject, Status: sandboxmcp.ApprovalDenied, ApprovalID: a.ID}
		if !d.Check {
			text := g.kind.text(a.Subject)
			g.emit(g.kind.Events.Denied, a.Namespace, text+" was denied", map[string]any{g.kind.Member: text, "approval_id": a.ID})
			answer.HowToApprove = g.howAfterAll(a)
		}
		return answer, nil, nil
	}
	if !d.Check {
		text := g.kind.text(n.Subject)
		g.emit(g.kind.Events.Approved, n.Namespace, text+" was opened", map[string]any{g.kind.Member: text, "approval_id": n.ApprovalID, "scope": n.Scope})
	}
	return sandboxmcp.AccessAnswer{Subject: n.Subject, Approved: true, Status: sandboxmcp.ApprovalApproved, ApprovalID: n.ApprovalID, ExpiresAt: n.ExpiresAt}, n, nil
}

func (g *Gate[S]) emit(t sandboxmcp.EventType, ns sandboxmcp.Namespace, message string, data map[string]any) {
	if t != "" && g.cfg.Events != nil {
		g.cfg.Events.Emit(sandboxmcp.Event{Type: t, Namespace: ns, Message: message, Data: data})
	}
}
