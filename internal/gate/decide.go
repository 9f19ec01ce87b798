package gate

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Decide carries out a person's decision. With an ID it answers that question. Without one
// it opens a domain for which there was no question. The audit entry is in the same
// transaction. If the question already has the same answer, Decide returns that. A
// different answer is refused: a denial is final, and an open domain is closed by
// [Gate.Revoke].
func (g *Gate) Decide(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.EgressDecision) (sandboxmcp.Approval, *sandboxmcp.EgressGrant, error) {
	if !g.cfg.Approvals && !d.Deny {
		return sandboxmcp.Approval{}, nil, Off()
	}
	if d.ID == "" {
		n, err := g.open(ctx, c, d)
		return sandboxmcp.Approval{}, n, err
	}
	var a approval
	var n *sandboxmcp.EgressGrant
	err := g.change(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		a, n, err = g.answer(ctx, tx, c, d)
		return err
	})
	if err != nil {
		return sandboxmcp.Approval{}, nil, err
	}
	return a.info, n, nil
}

// Off returns the error for settings that turn approvals off.
func Off() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeNetworkDisabled, "approvals are off: only the domains in the settings are open").
		WithHint("an operator sets egress_approvals (SANDBOXMCP_EGRESS_APPROVALS), or adds to allowed_domains")
}

// answer answers a question in a transaction.
func (g *Gate) answer(ctx context.Context, tx *sql.Tx, c sandboxmcp.Caller, d sandboxmcp.EgressDecision) (approval, *sandboxmcp.EgressGrant, error) {
	a, err := scanApproval(tx.QueryRowContext(ctx, selectApprovalOf, d.ID, c.Namespace, c.Namespace))
	if errors.Is(err, sql.ErrNoRows) {
		return a, nil, unknown(d.ID)
	}
	if err != nil {
		return a, nil, err
	}
	now := g.now()
	if !a.whole || d.SHA256 != "" && d.SHA256 != a.info.SHA256 {
		return a, nil, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "approval %s is not what was shown, so nothing is opened", sandboxmcp.Quote(d.ID)).
			WithHint("read it again: `sandboxmcp egress list`")
	}
	switch {
	case a.info.Status == sandboxmcp.ApprovalPending && now.Before(a.info.ExpiresAt):
	case a.info.Status == sandboxmcp.ApprovalDenied && d.Deny:
		return a, nil, nil
	case a.info.Status == sandboxmcp.ApprovalApproved && !d.Deny:
		n, err := g.grantOf(ctx, tx, a.grant)
		if n == nil && err == nil {
			err = sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "approval %s was approved and its grant is closed again", sandboxmcp.Quote(d.ID)).
				WithHint("open it with `sandboxmcp egress " + a.info.Domain + "`")
		}
		return a, n, err
	default:
		return a, nil, answered(a)
	}
	by := sandboxmcp.ApprovalApproved
	var n *sandboxmcp.EgressGrant
	entry := &sandboxmcp.AuditEntry{
		Action: actionDenied, Phase: sandboxmcp.PhaseOutcome, Namespace: a.info.Namespace, RequestID: a.info.RequestID, SessionID: a.info.SessionID, Actor: c.Actor, Detail: a.info.Domain,
		Metadata: map[string]any{"approval_id": a.info.ID, "domain": a.info.Domain, "sha256": a.info.SHA256},
	}
	if d.Deny {
		by = sandboxmcp.ApprovalDenied
	} else {
		if d.Scope == "" {
			d.Scope, d.For = sandboxmcp.GrantDuration, DefaultFor
		}
		if d.SessionID == "" {
			d.SessionID = a.info.SessionID
		}
		c.Namespace = a.info.Namespace
		made, err := newGrant(c, d, a.domain, a.info.ID, now)
		if err != nil {
			return a, nil, err
		}
		n = &made.info
		entry.Action, entry.Detail = actionOpened, made.words()
		made.describe(entry)
		if err := g.record(ctx, tx, entry, &made); err != nil {
			return a, nil, err
		}
		a.grant = n.ID
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

// answered returns the error for a second, different answer to a question.
func answered(a approval) error {
	id := sandboxmcp.Quote(a.info.ID)
	switch a.info.Status {
	case sandboxmcp.ApprovalDenied:
		return sandboxmcp.Errorf(sandboxmcp.CodeEgressDenied, "approval %s was denied, and that is final", id).
			WithHint("to open it after all, run `sandboxmcp egress " + a.info.Domain + "`")
	case sandboxmcp.ApprovalApproved:
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "approval %s was approved", id).
			WithHint("close it with `sandboxmcp egress revoke " + a.info.Domain + "`")
	case sandboxmcp.ApprovalPending, sandboxmcp.ApprovalExpired:
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "approval %s has expired: no person answered within %s", id, PendingFor).
		WithHint("open it with `sandboxmcp egress " + a.info.Domain + "`, or request it again")
}

// open opens a domain without a question. If an equivalent grant exists, open returns that.
// A pending question for this domain becomes approved.
func (g *Gate) open(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.EgressDecision) (*sandboxmcp.EgressGrant, error) {
	domain, err := ParseDomain(d.Domain, 0)
	if err != nil {
		return nil, err
	}
	if d.Scope == "" {
		d.Scope = sandboxmcp.GrantAlways
	}
	made, err := newGrant(c, d, domain, "", g.now())
	if err != nil {
		return nil, err
	}
	n := &made.info
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
func (g *Gate) alike(ctx context.Context, tx *sql.Tx, n *grant) (*sandboxmcp.EgressGrant, error) {
	_, digest, err := canonical(n.info.Namespace, n.domain)
	if err != nil {
		return nil, err
	}
	now := g.now()
	have, whole, err := scanGrant(tx.QueryRowContext(ctx, selectAlike, n.info.Namespace, digest, n.info.Scope, n.info.SessionID, format(now), madeUntil(now), format(n.nearly())))
	if errors.Is(err, sql.ErrNoRows) || err == nil && !whole {
		return nil, nil //nolint:nilnil // no failure
	}
	return &have.info, err
}

// openNow adds a grant and approves a pending question with the same subject.
func (g *Gate) openNow(ctx context.Context, tx *sql.Tx, n *grant) error {
	_, digest, err := canonical(n.info.Namespace, n.domain)
	if err != nil {
		return err
	}
	err = tx.QueryRowContext(ctx, selectPendingID, n.info.Namespace, digest, format(g.now())).Scan(&n.info.ApprovalID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	entry := &sandboxmcp.AuditEntry{Action: actionOpened, Phase: sandboxmcp.PhaseOutcome, Namespace: n.info.Namespace, SessionID: n.info.SessionID, Actor: n.info.GrantedBy, Detail: n.words(), Metadata: map[string]any{}}
	n.describe(entry)
	if err = g.record(ctx, tx, entry, n); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, decideApproval, sandboxmcp.ApprovalApproved, format(g.now()), n.info.GrantedBy, n.info.ID, n.info.ApprovalID)
	return err
}

// record adds the audit entry of a grant, and then the grant.
func (g *Gate) record(ctx context.Context, tx *sql.Tx, entry *sandboxmcp.AuditEntry, n *grant) error {
	if err := g.cfg.Audit.Op(entry)(ctx, tx); err != nil {
		return err
	}
	i := n.info
	text, digest, err := canonical(i.Namespace, n.domain)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, insertGrant, i.ID, i.Namespace, text, digest, i.Scope, i.SessionID, i.RequestID, i.ApprovalID, i.GrantedBy, format(i.GrantedAt), format(n.expires))
	return err
}

// newGrant makes a grant of a decision.
func newGrant(c sandboxmcp.Caller, d sandboxmcp.EgressDecision, domain sandboxmcp.Domain, approvalID string, now time.Time) (grant, error) {
	n := grant{domain: domain, info: sandboxmcp.EgressGrant{
		ID: newID("grt"), Domain: domain.String(), Namespace: c.Namespace, Scope: d.Scope, ApprovalID: approvalID, GrantedBy: c.Actor, GrantedAt: now,
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
			return n, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "a domain cannot be open for %s; at least a second and at most a year are allowed", d.For)
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
func (n *grant) nearly() time.Time {
	if n.expires.IsZero() {
		return n.expires
	}
	return n.expires.Add(-min(10*time.Second, n.expires.Sub(n.info.GrantedAt)/10))
}

// words describes a grant in the audit.
func (n *grant) words() string {
	switch n.info.Scope {
	case sandboxmcp.GrantOnce:
		return n.info.Domain + " for one run"
	case sandboxmcp.GrantSession:
		return n.info.Domain + " for session " + string(n.info.SessionID)
	case sandboxmcp.GrantDuration:
		return n.info.Domain + " until " + n.expires.Format(time.RFC3339)
	case sandboxmcp.GrantAlways:
	}
	return n.info.Domain + " until it is revoked"
}

// describe adds the exact fields of a grant to an audit entry.
func (n *grant) describe(e *sandboxmcp.AuditEntry) {
	e.Metadata["grant_id"], e.Metadata["domain"], e.Metadata["scope"], e.Metadata["expires_at"] = n.info.ID, n.info.Domain, n.info.Scope, format(n.expires)
	_, e.Metadata["sha256"], _ = canonical(n.info.Namespace, n.domain)
	if n.info.ApprovalID != "" {
		e.Metadata["approval_id"] = n.info.ApprovalID
	}
}

// grantOf returns the grant of an approval, or nil if it is closed again.
func (g *Gate) grantOf(ctx context.Context, tx *sql.Tx, id string) (*sandboxmcp.EgressGrant, error) {
	now := g.now()
	n, whole, err := scanGrant(tx.QueryRowContext(ctx, selectGrant, id, format(now), madeUntil(now)))
	if errors.Is(err, sql.ErrNoRows) || err == nil && !whole {
		return nil, nil //nolint:nilnil // no failure
	}
	return &n.info, err
}

// Revoke closes every grant of exactly this domain in the caller's namespace, and returns
// their number. Without such a grant it fails with request_not_found. A domain that the
// settings open stays open, and the hint says so.
func (g *Gate) Revoke(ctx context.Context, c sandboxmcp.Caller, domain string) (sandboxmcp.EgressRevoked, error) {
	d, err := ParseDomain(domain, 0)
	if err != nil {
		return sandboxmcp.EgressRevoked{}, err
	}
	_, digest, err := canonical(c.Namespace, d)
	if err != nil {
		return sandboxmcp.EgressRevoked{}, err
	}
	out := sandboxmcp.EgressRevoked{Domain: d.String()}
	err = g.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		done, failed := tx.ExecContext(ctx, revokeGrants, format(g.now()), c.Namespace, digest)
		if failed != nil {
			return failed
		}
		n, failed := done.RowsAffected()
		if failed != nil {
			return failed
		}
		if out.Revoked = int(n); n == 0 {
			return g.notGranted(c.Namespace, d)
		}
		return g.cfg.Audit.Op(&sandboxmcp.AuditEntry{
			Action: actionApproval, Phase: sandboxmcp.PhaseOutcome, Namespace: c.Namespace, Actor: c.Actor, Detail: "revoked " + out.Domain,
			Metadata: map[string]any{"domain": out.Domain, "sha256": digest, "grants": out.Revoked},
		})(ctx, tx)
	})
	return out, err
}

func (g *Gate) notGranted(ns sandboxmcp.Namespace, d sandboxmcp.Domain) error {
	e := sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "%s has no grant in namespace %s", d, ns).WithHint("see `sandboxmcp egress list`")
	if Covered(g.cfg.Operator, d) {
		e.Hint = "the settings open it: remove it from allowed_domains"
	}
	return e
}
