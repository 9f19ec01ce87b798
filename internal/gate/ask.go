package gate

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Actions in the audit.
const (
	actionAsked    = "egress_request"
	actionOpened   = "egress_approved"
	actionDenied   = "egress_denied"
	actionApproval = "approval" // a grant was used or revoked
)

// approval is a row of approvals.
type approval struct {
	info    sandboxmcp.Approval
	domain  sandboxmcp.Domain
	whole   bool // the row is unchanged since it was written
	decided time.Time
	grant   string
}

func scanApproval(row interface{ Scan(dest ...any) error }) (approval, error) {
	var a approval
	var text, asked, expires, decided, reason string
	i := &a.info
	if err := row.Scan(&i.ID, &i.Namespace, &text, &i.SHA256, &reason, &i.RequestedBy, &i.SessionID, &i.RequestID, &i.Status, &asked, &expires, &decided, &a.grant); err != nil {
		return a, err
	}
	a.domain, a.whole = reading(text, i.SHA256)
	if _, mine, err := canonical(i.Namespace, a.domain); err != nil || mine != i.SHA256 {
		a.whole = false
	}
	i.Domain, i.Reason, i.ReasonFrom = a.domain.String(), QuoteReason(reason), reasonFrom
	i.RequestedAt, i.ExpiresAt, a.decided = parse(asked), parse(expires), parse(decided)
	return a, nil
}

// reasonFrom names the author of a reason.
const reasonFrom = "model"

// QuoteReason returns a reason that a model wrote in the form that is shown: on one line,
// in quotes, at most shownReason bytes. Characters that could mislead a terminal or a
// reader are escaped.
func QuoteReason(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), sandboxmcp.Blank), " ")
	if len(s) > shownReason {
		return strconv.Quote(strings.ToValidUTF8(s[:shownReason], "")) + "…"
	}
	return strconv.Quote(s)
}

// Request asks a person to open a domain. If the same question is pending or was denied in
// the last ten minutes, Request returns that one, and fresh is false. The caller has
// checked that the domain is not open yet. Request fails with invalid_argument,
// blocked_address, queue_full or backend_unavailable.
func (g *Gate) Request(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.EgressAsk) (asked sandboxmcp.Approval, fresh bool, err error) {
	d, err := ParseDomain(ask.Domain, ask.Port)
	if err != nil {
		return sandboxmcp.Approval{}, false, err
	}
	text, digest, err := canonical(c.Namespace, d)
	if err != nil {
		return sandboxmcp.Approval{}, false, err
	}
	reason := strings.ToValidUTF8(ask.Reason, "\uFFFD")
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	a, known, err := g.known(ctx, c.Namespace, digest)
	if known || err != nil {
		return a.info, false, err
	}
	err = g.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now := g.now()
		fresh = false
		failed := lapse(ctx, tx, now)
		if failed != nil {
			return failed
		}
		if a, failed = findSame(ctx, tx, c.Namespace, digest, now); !errors.Is(failed, sql.ErrNoRows) {
			return failed
		}
		if failed = g.checkQuota(ctx, tx, c.Namespace, now); failed != nil {
			return failed
		}
		g.asked.add(c.Namespace, now)
		a = approval{domain: d, whole: true, info: sandboxmcp.Approval{
			ID: newID("apr"), Domain: d.String(), Reason: QuoteReason(reason), ReasonFrom: reasonFrom, Namespace: c.Namespace, Status: sandboxmcp.ApprovalPending, SHA256: digest,
			RequestedBy: c.Actor, SessionID: ask.SessionID, RequestID: ask.RequestID, RequestedAt: now, ExpiresAt: now.Add(PendingFor),
		}}
		fresh = true
		i := a.info
		failed = g.cfg.Audit.Op(&sandboxmcp.AuditEntry{
			Action: actionAsked, Phase: sandboxmcp.PhaseIntent, Namespace: c.Namespace, RequestID: ask.RequestID, SessionID: ask.SessionID, Actor: c.Actor, Detail: i.Domain,
			Metadata: map[string]any{"approval_id": i.ID, "domain": i.Domain, "sha256": digest, "reason_bytes": len(ask.Reason), "reason_sha256": digestOf(ask.Reason), "expires_at": format(i.ExpiresAt)},
		})(ctx, tx)
		if failed != nil {
			return failed
		}
		_, failed = tx.ExecContext(ctx, insertApproval, i.ID, i.Namespace, text, digest, reason, i.RequestedBy, i.SessionID, i.RequestID, i.Status, format(i.RequestedAt), format(i.ExpiresAt))
		return failed
	})
	if err != nil {
		return sandboxmcp.Approval{}, false, err
	}
	if fresh {
		g.bell.ring(a.info)
	}
	return a.info, fresh, nil
}

// known finds an earlier question with the same subject. It fails with queue_full if there
// is none and the namespace may not ask a further one. It writes nothing. Programs may ask
// as fast as they can, and each write would wake every process that waits.
func (g *Gate) known(ctx context.Context, ns sandboxmcp.Namespace, digest string) (a approval, known bool, err error) {
	now := g.now()
	a, err = findSame(ctx, g.cfg.Store.DB(), ns, digest, now)
	switch {
	case err == nil:
		return a, a.info.Status != sandboxmcp.ApprovalPending || now.Before(a.info.ExpiresAt), nil
	case !errors.Is(err, sql.ErrNoRows):
		return a, false, unreadable(err)
	}
	if err := g.checkQuota(ctx, g.cfg.Store.DB(), ns, now); err != nil {
		return a, false, sandboxmcp.AsError(err)
	}
	return a, false, nil
}

// lapse marks questions that were not answered in time as expired, and deletes rows that
// ended long ago.
func lapse(ctx context.Context, tx *sql.Tx, now time.Time) error {
	for _, q := range []struct {
		text string
		at   time.Time
	}{
		{lapseApprovals, now},
		{deleteApprovals, now.Add(-keepFor)},
		{deleteGrants, now.Add(-keepFor)},
	} {
		if _, err := tx.ExecContext(ctx, q.text, format(q.at)); err != nil {
			return err
		}
	}
	return nil
}

// findSame finds a question with the same subject that is pending, was denied in the last
// ten minutes, or has a grant in force. If none is found, the error is sql.ErrNoRows.
func findSame(ctx context.Context, db store.Querier, ns sandboxmcp.Namespace, digest string, now time.Time) (approval, error) {
	return scanApproval(db.QueryRowContext(ctx, selectSame, ns, digest, format(now.Add(-deniedFor)), format(now), madeUntil(now)))
}

// checkQuota fails with queue_full if too many questions are pending or were asked within a
// minute.
func (g *Gate) checkQuota(ctx context.Context, db store.Querier, ns sandboxmcp.Namespace, now time.Time) error {
	var own, all int
	if err := db.QueryRowContext(ctx, countPending, ns, format(now)).Scan(&own, &all); err != nil {
		return err
	}
	if own >= maxPending || all >= maxPendingAll {
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "%d requests already wait for a person", own).
			WithHint("ask again once some are answered: `sandboxmcp egress list`").With("limit", maxPending)
	}
	if g.asked.full(ns, now) {
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "more than %d domains were requested within a minute", newPerMinute).
			WithHint("ask again in a minute, and only for domains that are needed").With("limit", newPerMinute)
	}
	return nil
}

// rate counts the questions that each namespace has asked within a minute.
type rate struct {
	mu   sync.Mutex
	seen map[sandboxmcp.Namespace][]time.Time
}

// full reports whether a namespace has used up its questions of this minute.
func (r *rate) full(ns sandboxmcp.Namespace, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	recent := r.seen[ns]
	for len(recent) > 0 && (now.Sub(recent[0]) >= time.Minute || now.Sub(recent[0]) <= -time.Minute) { // the clock may have been set back
		recent = recent[1:]
	}
	if len(recent) == 0 {
		delete(r.seen, ns)
		return false
	}
	r.seen[ns] = recent
	return len(recent) >= newPerMinute
}

// add counts a question.
func (r *rate) add(ns sandboxmcp.Namespace, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == nil {
		r.seen = map[sandboxmcp.Namespace][]time.Time{}
	}
	r.seen[ns] = append(r.seen[ns], now)
}

// Find returns a question of a namespace, or of any namespace if ns is empty. If it does
// not exist, Find fails with request_not_found.
func (g *Gate) Find(ctx context.Context, ns sandboxmcp.Namespace, id string) (sandboxmcp.Approval, error) {
	a, err := g.find(ctx, id)
	if err == nil && ns != "" && a.info.Namespace != ns {
		return sandboxmcp.Approval{}, unknown(id)
	}
	return a.info, err
}

func (g *Gate) find(ctx context.Context, id string) (approval, error) {
	a, err := scanApproval(g.cfg.Store.DB().QueryRowContext(ctx, selectApproval, id))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return a, unknown(id)
	case err != nil:
		return a, unreadable(err)
	}
	if a.info.Status == sandboxmcp.ApprovalPending && !g.now().Before(a.info.ExpiresAt) {
		a.info.Status = sandboxmcp.ApprovalExpired
	}
	return a, nil
}

func unknown(id string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no approval %s is known", sandboxmcp.Quote(id)).
		WithHint("see `sandboxmcp egress list`")
}

// Wait waits until a question is answered, by any process, or expires, and returns it. If
// ctx ends first, Wait returns the question as still pending. It also returns early once
// open reports true; open is called after every change of a question or a grant.
func (g *Gate) Wait(ctx context.Context, id string, open func() bool) (sandboxmcp.Approval, error) {
	for {
		version, err := g.watch.Version(context.WithoutCancel(ctx))
		if err != nil {
			return sandboxmcp.Approval{}, unreadable(err)
		}
		a, err := g.Find(context.WithoutCancel(ctx), "", id)
		if err != nil || a.Status != sandboxmcp.ApprovalPending || open() || ctx.Err() != nil {
			return a, err
		}
		g.waitChange(ctx, version, a.ExpiresAt.Sub(g.now()))
	}
}

// waitChange waits until something has changed since a version, ctx ends, or the time most
// has passed. It ignores errors of the database; the caller gets them at its next read.
func (g *Gate) waitChange(ctx context.Context, since int64, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_ = g.watch.Wait(ctx, since)
}
