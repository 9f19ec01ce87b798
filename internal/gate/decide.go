package gate

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Decide carries out a person's decision. With an ID it answers that question. Without one
// it opens a subject for which there was no question. The audit entry is in the same
// transaction. If the question already has the same answer, Decide returns that. A
// different answer is refused, also one with another scope or time: a denial is final, and
// an open subject is closed by [Gate.Revoke]. With d.Check it only says what it would do.
func (g *Gate[S]) decide(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.Approval, *sandboxmcp.AccessGrant, error) {
	if !g.asking.Load() && !d.Deny {
		return sandboxmcp.Approval{}, nil, g.kind.Off()
	}
	if d.ID == "" {
		n, err := g.open(ctx, c, d)
		return sandboxmcp.Approval{}, n, err
	}
	var a approval[S]
	var n *sandboxmcp.AccessGrant
	of, denied, err := g.askedFor(ctx, d.ID)
	if err != nil {
		return sandboxmcp.Approval{}, nil, err
	}
	err = g.change(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		a, n, err = g.answer(ctx, tx, c, d, of)
		if denied && !d.Deny && (err == nil || errors.Is(err, errChecked)) { // a writer of the database has changed the row since
			a.info.Status = sandboxmcp.ApprovalDenied
			return g.answered(a)
		}
		return err
	})
	if errors.Is(err, errChecked) {
		err = nil
	}
	if err != nil {
		return sandboxmcp.Approval{}, nil, err
	}
	return a.info, n, nil
}

// errChecked undoes the transaction of a decision that was only checked.
var errChecked = errors.New("only checked")

// answer answers a question in a transaction. of is the question in the record.
func (g *Gate[S]) answer(ctx context.Context, tx *sql.Tx, c sandboxmcp.Caller, d sandboxmcp.AccessDecision, of asked) (approval[S], *sandboxmcp.AccessGrant, error) {
	a, err := g.scanApproval(tx.QueryRowContext(ctx, selectApprovalOf, d.ID, c.Namespace, c.Namespace))
	if errors.Is(err, sql.ErrNoRows) || err == nil && a.state == foreign {
		return a, nil, g.unknown(d.ID)
	}
	if err != nil {
		return a, nil, err
	}
	now := g.now()
	if a.state != whole || d.SHA256 != "" && d.SHA256 != a.info.SHA256 {
		return a, nil, g.notShown(d.ID)
	}
	switch {
	case a.info.Status == sandboxmcp.ApprovalPending && now.Before(a.info.ExpiresAt):
	case a.info.Status == sandboxmcp.ApprovalDenied && d.Deny:
		return a, nil, nil
	case a.info.Status == sandboxmcp.ApprovalApproved && !d.Deny:
		n, err := g.sameGrant(ctx, tx, a, d)
		return a, n, err
	default:
		return a, nil, g.answered(a)
	}
	by := sandboxmcp.ApprovalApproved
	var n *sandboxmcp.AccessGrant
	entry := &sandboxmcp.AuditEntry{
		Action: g.kind.Denied, Phase: sandboxmcp.PhaseOutcome, Namespace: a.info.Namespace, RequestID: a.info.RequestID, SessionID: a.info.SessionID, Actor: c.Actor, Detail: a.subject.String(),
		Metadata: map[string]any{"approval_id": a.info.ID, g.kind.Member: a.subject.String(), "sha256": a.info.SHA256},
	}
	if d.Deny {
		by = sandboxmcp.ApprovalDenied
	} else {
		if of != (asked{a.info.SHA256, string(a.info.SessionID)}) {
			return a, nil, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the audit record does not say that %s was asked for with approval %s, so nothing is opened", sandboxmcp.Quote(a.subject.String()), sandboxmcp.Quote(d.ID)).
				WithHint("somebody has changed the database: run `sandboxmcp audit verify`, and deny this approval")
		}
		made, err := g.grantFor(c, d, a, now)
		if err != nil {
			return a, nil, err
		}
		n = &made.info
		if d.Check {
			return a, n, errChecked
		}
		entry.Action, entry.Detail = g.kind.Opened, made.words()
		g.describe(entry, &made)
		if err := g.record(ctx, tx, entry, &made); err != nil {
			return a, nil, err
		}
		a.grant = n.ID
	}
	if d.Check {
		return a, nil, errChecked
	}
	if d.Deny {
		if err := g.cfg.Audit.Op(entry)(ctx, tx); err != nil {
			return a, nil, err
		}
	}
	if _, err := tx.ExecContext(ctx, decideApproval, by, format(now), c.Actor, a.grant, a.info.ID); err != nil {
		return a, nil, err
	}
	a.info.Status = by
	return a, n, nil
}

func (g *Gate[S]) notShown(id string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "approval %s is not what was shown, so nothing is opened", sandboxmcp.Quote(id)).
		WithHint("read it again: " + g.kind.command("list"))
}

// grantFor makes the grant that a decision asks for as the answer to a question.
func (g *Gate[S]) grantFor(c sandboxmcp.Caller, d sandboxmcp.AccessDecision, a approval[S], at time.Time) (grant[S], error) {
	if d.Scope == "" {
		d.Scope, d.For = sandboxmcp.GrantDuration, DefaultFor
	}
	if d.SessionID == "" {
		d.SessionID = a.info.SessionID
	}
	c.Namespace = a.info.Namespace
	return g.newGrant(c, d, a.subject, a.info.ID, at)
}

// sameGrant returns the grant of an approved question. It fails if the grant is closed, or if the
// decision asks for another one: the person would be told of a grant that they did not choose.
func (g *Gate[S]) sameGrant(ctx context.Context, tx *sql.Tx, a approval[S], d sandboxmcp.AccessDecision) (*sandboxmcp.AccessGrant, error) {
	have, err := g.grantOf(ctx, tx, a.grant)
	if err != nil {
		return nil, err
	}
	if have == nil {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "approval %s was approved and its grant is closed again", sandboxmcp.Quote(a.info.ID)).
			WithHint("open it with `sandboxmcp " + g.kind.Grant(a.subject.String()) + "`")
	}
	want, err := g.grantFor(sandboxmcp.Caller{}, d, a, have.GrantedAt)
	if err != nil {
		return nil, err
	}
	same := have.Scope == want.info.Scope && have.SessionID == want.info.SessionID && (have.ExpiresAt == nil) == want.expires.IsZero()
	if same && have.ExpiresAt != nil {
		same = have.ExpiresAt.Sub(want.expires).Abs() < time.Second // times are stored rounded
	}
	if !same {
		return nil, g.answered(a)
	}
	return have, nil
}

// answered returns the error for a second, different answer to a question.
func (g *Gate[S]) answered(a approval[S]) error {
	id := sandboxmcp.Quote(a.info.ID)
	switch a.info.Status {
	case sandboxmcp.ApprovalDenied:
		return sandboxmcp.Errorf(g.kind.Refused, "approval %s was denied, and that is final", id).
			WithHint("to open it after all, run `sandboxmcp " + g.kind.Grant(a.subject.String()) + "`")
	case sandboxmcp.ApprovalApproved:
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "approval %s was approved", id).
			WithHint("close it with " + g.kind.command("revoke "+sandboxmcp.ShellQuote(a.subject.String())))
	case sandboxmcp.ApprovalPending, sandboxmcp.ApprovalExpired:
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "approval %s has expired: no person answered within %s", id, PendingFor).
		WithHint("open it with `sandboxmcp " + g.kind.Grant(a.subject.String()) + "`, or request it again")
}

// open opens a subject without a question. If an equivalent grant exists, open returns that.
// A pending question for this subject becomes approved.
func (g *Gate[S]) open(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (*sandboxmcp.AccessGrant, error) {
	s, err := g.kind.Parse(g.kind.text(d.Subject))
	if err != nil {
		return nil, err
	}
	if d.Scope == "" {
		d.Scope = sandboxmcp.GrantAlways
	}
	made, err := g.newGrant(c, d, s, "", g.now())
	if err != nil {
		return nil, err
	}
	n := &made.info
	if d.Check {
		return n, nil
	}
	err = g.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		have, failed := g.alike(ctx, tx, &made)
		if have != nil || failed != nil {
			n = have
			return failed
		}
		n = &made.info
		return g.openNow(ctx, tx, &made)
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// alike finds a grant that is equivalent to n. It returns nil if there is none.
func (g *Gate[S]) alike(ctx context.Context, tx *sql.Tx, n *grant[S]) (*sandboxmcp.AccessGrant, error) {
	_, digest, err := g.kind.canonical(n.info.Namespace, n.subject)
	if err != nil {
		return nil, err
	}
	now := g.now()
	return g.first(ctx, tx, selectAlike, n.info.Namespace, digest, n.info.Scope, n.info.SessionID, format(now), madeUntil(now), format(n.nearly()))
}

// openNow adds a grant and approves a pending question with the same subject.
func (g *Gate[S]) openNow(ctx context.Context, tx *sql.Tx, n *grant[S]) error {
	_, digest, err := g.kind.canonical(n.info.Namespace, n.subject)
	if err != nil {
		return err
	}
	err = tx.QueryRowContext(ctx, selectPendingID, n.info.Namespace, digest, format(g.now())).Scan(&n.info.ApprovalID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	entry := &sandboxmcp.AuditEntry{Action: g.kind.Opened, Phase: sandboxmcp.PhaseOutcome, Namespace: n.info.Namespace, SessionID: n.info.SessionID, Actor: n.info.GrantedBy, Detail: n.words(), Metadata: map[string]any{}}
	g.describe(entry, n)
	if err = g.record(ctx, tx, entry, n); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, decideApproval, sandboxmcp.ApprovalApproved, format(g.now()), n.info.GrantedBy, n.info.ID, n.info.ApprovalID)
	return err
}

// record adds the audit entry of a grant, and then the grant.
func (g *Gate[S]) record(ctx context.Context, tx *sql.Tx, entry *sandboxmcp.AuditEntry, n *grant[S]) error {
	if err := g.cfg.Audit.Op(entry)(ctx, tx); err != nil {
		return err
	}
	i := n.info
	text, digest, err := g.kind.canonical(i.Namespace, n.subject)
	if err != nil {
		return err
	}
	r := stored{
		id: i.ID, namespace: string(i.Namespace), subject: text, digest: digest, scope: string(i.Scope), session: string(i.SessionID), request: string(i.RequestID),
		approval: i.ApprovalID, actor: i.GrantedBy, granted: format(i.GrantedAt), expires: format(n.expires),
	}
	mac, err := g.macs.Of(r.columns()...)
	if err == nil {
		_, err = tx.ExecContext(ctx, insertGrant, append(r.values(), mac)...)
	}
	return err
}

// newGrant makes a grant of a decision.
func (g *Gate[S]) newGrant(c sandboxmcp.Caller, d sandboxmcp.AccessDecision, s S, approvalID string, now time.Time) (grant[S], error) {
	n := grant[S]{subject: s, info: sandboxmcp.AccessGrant{
		ID: newID("grt"), Subject: g.kind.subject(s), Namespace: c.Namespace, Scope: d.Scope, ApprovalID: approvalID, GrantedBy: c.Actor, GrantedAt: now, Status: sandboxmcp.GrantOpen,
	}}
	if _, err := sandboxmcp.ParseNamespace(string(c.Namespace)); err != nil {
		return n, err
	}
	switch d.Scope {
	case sandboxmcp.GrantOnce:
		n.expires = now.Add(onceFor)
	case sandboxmcp.GrantSession:
		if _, err := sandboxmcp.ParseSessionID(string(d.SessionID)); err != nil {
			return n, err
		}
		n.info.SessionID, n.expires = d.SessionID, now.Add(sessionFor)
	case sandboxmcp.GrantDuration:
		if d.For < time.Second || d.For > MaxFor {
			return n, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "a %s cannot be open for %s; at least a second and at most a year are allowed", g.kind.Noun, d.For)
		}
		n.expires = now.Add(d.For)
	case sandboxmcp.GrantAlways:
	default:
		return n, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "scope %s is not one of once, session, duration, always", sandboxmcp.Quote(string(d.Scope)))
	}
	if !n.expires.IsZero() {
		n.info.ExpiresAt = &n.expires
	}
	return n, nil
}

// nearly returns a time shortly before n ends. A grant that holds until then counts as
// equivalent. So several servers that receive the same decision one after the other make
// only one grant.
func (n *grant[S]) nearly() time.Time {
	if n.expires.IsZero() {
		return n.expires
	}
	return n.expires.Add(-min(10*time.Second, n.expires.Sub(n.info.GrantedAt)/10))
}

// words describes a grant in the audit.
func (n *grant[S]) words() string {
	switch n.info.Scope {
	case sandboxmcp.GrantOnce:
		return n.subject.String() + " for one run"
	case sandboxmcp.GrantSession:
		return n.subject.String() + " for session " + string(n.info.SessionID)
	case sandboxmcp.GrantDuration:
		return n.subject.String() + " until " + n.expires.Format(time.RFC3339)
	case sandboxmcp.GrantAlways:
	}
	return n.subject.String() + " until it is revoked"
}

// describe adds the exact fields of a grant to an audit entry.
func (g *Gate[S]) describe(e *sandboxmcp.AuditEntry, n *grant[S]) {
	e.Metadata["grant_id"], e.Metadata[g.kind.Member], e.Metadata["scope"], e.Metadata["expires_at"] = n.info.ID, n.subject.String(), n.info.Scope, format(n.expires)
	_, e.Metadata["sha256"], _ = g.kind.canonical(n.info.Namespace, n.subject)
	if n.info.ApprovalID != "" {
		e.Metadata["approval_id"] = n.info.ApprovalID
	}
}

// grantOf returns the grant of an approval, or nil if it is closed again.
func (g *Gate[S]) grantOf(ctx context.Context, db store.Querier, id string) (*sandboxmcp.AccessGrant, error) {
	now := g.now()
	return g.first(ctx, db, selectGrant, id, format(now), madeUntil(now))
}

// Revoke closes every grant of exactly this subject in the caller's namespace, and returns
// their number. Without such a grant it fails with request_not_found. A subject that the
// settings open stays open, and the hint says so.
func (g *Gate[S]) Revoke(ctx context.Context, c sandboxmcp.Caller, text string) (sandboxmcp.AccessRevoked, error) {
	s, err := g.kind.Parse(text)
	if err != nil {
		return sandboxmcp.AccessRevoked{}, err
	}
	_, digest, err := g.kind.canonical(c.Namespace, s)
	if err != nil {
		return sandboxmcp.AccessRevoked{}, err
	}
	out := sandboxmcp.AccessRevoked{Subject: g.kind.subject(s)}
	var ids []string
	err = g.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now := format(g.now())
		all, failed := store.Select(ctx, tx, (*stored).scan, selectGrants, now, "", "") // as they are read to be used
		if failed != nil {
			return failed
		}
		// The statement does not compare: to that, a namespace that a writer of the database has made a blob would be another one.
		all = slices.DeleteFunc(all, func(r stored) bool { return r.namespace != string(c.Namespace) || r.digest != digest })
		if out.Revoked = len(all); len(all) == 0 {
			return g.notGranted(c.Namespace, s)
		}
		ids = make([]string, len(all))
		for n, r := range all {
			ids[n] = r.id
			if _, failed = tx.ExecContext(ctx, revokeGrant, now, r.id); failed != nil {
				return failed
			}
		}
		return g.cfg.Audit.Op(&sandboxmcp.AuditEntry{
			Action: actionApproval, Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor, Detail: "revoked " + s.String(),
			Metadata: map[string]any{g.kind.Member: s.String(), "sha256": digest, "grants": out.Revoked, "grant_ids": ids},
		})(ctx, tx)
	})
	if err == nil {
		g.endings.revoked(ids)
	}
	return out, err
}

func (g *Gate[S]) notGranted(ns sandboxmcp.Namespace, s S) error {
	e := sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "%s has no grant in namespace %s", s, ns).WithHint("see " + g.kind.command("list"))
	if g.kind.covered(g.operator(), s) {
		e.Hint = "the settings open it: remove it from " + g.kind.Setting
	}
	return e
}
