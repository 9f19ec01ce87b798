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
)

// The audit's words.
const (
	actionAsked    = "egress_request"
	actionOpened   = "egress_approved"
	actionDenied   = "egress_denied"
	actionApproval = "approval" // an approval was used up, or taken back
)

// approval is a row of approvals.
type approval struct {
	info    sandboxmcp.Approval
	domain  sandboxmcp.Domain
	whole   bool // it is what was asked
	decided time.Time
	grant   string
}

const approvalColumns = `id, namespace, subject, digest, reason, actor, session_id, request_id, state, asked_at, expires_at, decided_at, grant_id`

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

// reasonFrom marks a reason as what it is.
const reasonFrom = "model"

// QuoteReason is how a reason that a model wrote is shown: on one line, in
// quotes, with everything escaped that a terminal or a reader could take for
// something else, and not at any length.
func QuoteReason(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), sandboxmcp.Blank), " ")
	if len(s) > shownReason {
		return strconv.Quote(strings.ToValidUTF8(s[:shownReason], "")) + "…"
	}
	return strconv.Quote(s)
}

// Request asks a person, unless the same is asked already or was denied a moment
// ago: then the answer is that one, and fresh is false. Whether it is open
// already is the caller's to look up.
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
		if failed = g.room(ctx, tx, c.Namespace, now); failed != nil {
			return failed
		}
		g.asked.add(c.Namespace, now)
		a = approval{domain: d, whole: true, info: sandboxmcp.Approval{
			ID: newID("apr"), Domain: d.String(), Reason: QuoteReason(reason), ReasonFrom: reasonFrom, Namespace: c.Namespace, Status: sandboxmcp.ApprovalPending, SHA256: digest,
			RequestedBy: c.Actor, SessionID: ask.SessionID, RequestID: ask.RequestID, RequestedAt: now, ExpiresAt: now.Add(PendingFor),
		}}
		fresh = true
		const insert = `INSERT INTO approvals (` + approvalColumns + `, decided_by) VALUES (?,?,?,?,?,?,?,?,?,?,?,'','','')`
		i := a.info
		failed = g.cfg.Audit.Op(&sandboxmcp.AuditEntry{
			Action: actionAsked, Phase: sandboxmcp.PhaseIntent, Namespace: c.Namespace, RequestID: ask.RequestID, SessionID: ask.SessionID, Actor: c.Actor, Detail: i.Domain,
			Metadata: map[string]any{"approval_id": i.ID, "domain": i.Domain, "sha256": digest, "reason_bytes": len(ask.Reason), "reason_sha256": digestOf(ask.Reason), "expires_at": format(i.ExpiresAt)},
		})(ctx, tx)
		if failed != nil {
			return failed
		}
		_, failed = tx.ExecContext(ctx, insert, i.ID, i.Namespace, text, digest, reason, i.RequestedBy, i.SessionID, i.RequestID, i.Status, format(i.RequestedAt), format(i.ExpiresAt))
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

// known finds what was asked already, and refuses what may not be asked now,
// without writing: programs ask as fast as they like where connections are held,
// and who waits looks up everything at each change.
func (g *Gate) known(ctx context.Context, ns sandboxmcp.Namespace, digest string) (a approval, known bool, err error) {
	now := g.now()
	a, err = findSame(ctx, g.cfg.Store.DB(), ns, digest, now)
	switch {
	case err == nil:
		return a, a.info.Status != sandboxmcp.ApprovalPending || now.Before(a.info.ExpiresAt), nil
	case !errors.Is(err, sql.ErrNoRows):
		return a, false, unreadable(err)
	}
	if err := g.room(ctx, g.cfg.Store.DB(), ns, now); err != nil {
		return a, false, sandboxmcp.AsError(err)
	}
	return a, false, nil
}

// reader is the database, or a transaction of it.
type reader interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// lapse ends what nobody answered in time, and forgets what ended long ago.
func lapse(ctx context.Context, tx *sql.Tx, now time.Time) error {
	for _, q := range []struct {
		text string
		at   time.Time
	}{
		{`UPDATE approvals SET state = 'expired' WHERE state = 'pending' AND expires_at <= ?`, now},
		{`DELETE FROM approvals WHERE state <> 'pending' AND expires_at <= ?`, now.Add(-keepFor)},
		{`DELETE FROM grants WHERE revoked_at <> '' AND revoked_at <= ?1 OR expires_at <> '' AND expires_at <= ?1`, now.Add(-keepFor)},
	} {
		if _, err := tx.ExecContext(ctx, q.text, format(q.at)); err != nil {
			return err
		}
	}
	return nil
}

// findSame finds the question that asks the same: one that waits, one that was
// denied a moment ago, or one whose answer has just opened it.
func findSame(ctx context.Context, tx reader, ns sandboxmcp.Namespace, digest string, now time.Time) (approval, error) {
	const q = `SELECT ` + approvalColumns + ` FROM approvals WHERE namespace = ? AND digest = ? AND (
			state = 'pending' OR state = 'denied' AND decided_at > ? OR state = 'approved' AND EXISTS (
				SELECT 1 FROM grants WHERE id = grant_id AND revoked_at = '' AND (expires_at = '' OR expires_at > ?) AND scope <> 'session' AND request_id = ''))
		ORDER BY state = 'pending' DESC, decided_at DESC LIMIT 1`
	return scanApproval(tx.QueryRowContext(ctx, q, ns, digest, format(now.Add(-deniedFor)), format(now)))
}

// room refuses a question where too many are asked.
func (g *Gate) room(ctx context.Context, tx reader, ns sandboxmcp.Namespace, now time.Time) error {
	var own, all int
	const q = `SELECT count(CASE WHEN namespace = ? THEN 1 END), count(*) FROM approvals WHERE state = 'pending' AND expires_at > ?`
	if err := tx.QueryRowContext(ctx, q, ns, format(now)).Scan(&own, &all); err != nil {
		return err
	}
	if own >= maxPending || all >= maxPendingAll {
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "%d requests are waiting for a person already", own).
			WithHint("ask again when some were answered: `sandboxmcp egress list`").With("limit", maxPending)
	}
	if g.asked.full(ns, now) {
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "more than %d domains were asked for within a minute", newPerMinute).
			WithHint("ask again in a minute, and only for what is needed").With("limit", newPerMinute)
	}
	return nil
}

// rate bounds how many questions a namespace asks in a minute.
type rate struct {
	mu   sync.Mutex
	seen map[sandboxmcp.Namespace][]time.Time
}

// full reports whether no more may be asked now.
func (r *rate) full(ns sandboxmcp.Namespace, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	recent := r.seen[ns]
	for len(recent) > 0 && now.Sub(recent[0]) >= time.Minute {
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

// Find returns a question of a namespace, or of any namespace if ns is empty. It
// fails with request_not_found.
func (g *Gate) Find(ctx context.Context, ns sandboxmcp.Namespace, id string) (sandboxmcp.Approval, error) {
	a, err := g.find(ctx, id)
	if err == nil && ns != "" && a.info.Namespace != ns {
		return sandboxmcp.Approval{}, unknown(id)
	}
	return a.info, err
}

func (g *Gate) find(ctx context.Context, id string) (approval, error) {
	const q = `SELECT ` + approvalColumns + ` FROM approvals WHERE id = ?`
	a, err := scanApproval(g.cfg.Store.DB().QueryRowContext(ctx, q, id))
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

// Wait waits until a question is answered, by whichever process, or lapses, and
// tells what became of it. When ctx ends first, that is that it waits still; so
// it is when open says that there is nothing left to wait for, which is asked
// whenever something has changed.
func (g *Gate) Wait(ctx context.Context, id string, open func() bool) (sandboxmcp.Approval, error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		next := g.mark.next()
		mark, err := g.mark.size()
		if err != nil {
			return sandboxmcp.Approval{}, unreadable(err)
		}
		a, err := g.Find(context.WithoutCancel(ctx), "", id)
		if err != nil || a.Status != sandboxmcp.ApprovalPending || open() {
			return a, err
		}
		for same := true; same; {
			select {
			case <-ctx.Done():
				return g.Find(context.WithoutCancel(ctx), "", id)
			case <-next:
				same = false
			case <-tick.C:
				now, err := g.mark.size()
				same = err == nil && now == mark && g.now().Before(a.ExpiresAt)
			}
		}
	}
}
