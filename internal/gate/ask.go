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

// actionApproval is the action in the audit of a grant that was used or revoked.
const actionApproval = "approval"

// Ask is a request for access to a subject.
type Ask struct {
	Reason    string // written by a model, so it need not be true
	SessionID sandboxmcp.SessionID
	Born      time.Time            // see [Who]
	Apart     bool                 // see [Who]
	RequestID sandboxmcp.RequestID // run that waits for the answer; empty: no run waits
}

// approval is a row of approvals.
type approval[S Subject[S]] struct {
	info    sandboxmcp.Approval
	subject S
	state   reading
	decided time.Time
	grant   string
}

func (g *Gate[S]) scanApproval(row store.Row) (approval[S], error) {
	var a approval[S]
	var text, asked, expires, decided, reason string
	i := &a.info
	if err := row.Scan(&i.ID, &i.Namespace, &text, &i.SHA256, &reason, &i.RequestedBy, &i.SessionID, &i.RequestID, &i.Status, &asked, &expires, &decided, &a.grant); err != nil {
		return a, err
	}
	a.subject, a.state = g.kind.read(i.Namespace, text, i.SHA256)
	i.Subject = g.kind.subject(a.subject)
	i.Reason, i.ReasonFrom = shown(reason, i.RequestID)
	i.RequestedAt, i.ExpiresAt, a.decided = parse(asked), parse(expires), parse(decided)
	return a, nil
}

// Authors of a question, as Approval.ReasonFrom names them.
const (
	fromModel   = "model"
	fromProgram = "program" // a run whose connection waits
)

// shown returns a reason as it is shown, and its author. Programs give no reasons.
func shown(reason string, run sandboxmcp.RequestID) (text, from string) {
	if from = fromModel; run != "" {
		from = fromProgram
	}
	if reason != "" {
		text = QuoteReason(reason)
	}
	return text, from
}

// QuoteReason returns a reason that a model wrote in the form that is shown: on one line,
// in quotes, at most shownReason bytes. Characters that could mislead a terminal or a
// reader are escaped, and backquotes, so that no command in it is one of this program's.
func QuoteReason(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), sandboxmcp.Blank), " ")
	end := ""
	if len(s) > shownReason {
		s, end = strings.ToValidUTF8(s[:shownReason], ""), "…"
	}
	return strings.ReplaceAll(strconv.Quote(s), "`", `\x60`) + end
}

// Request asks a person to open a subject. If the same question is pending or was denied in
// the last ten minutes, Request returns that one, and fresh is false. The caller has
// checked that the subject is not open yet. Request fails with queue_full or
// backend_unavailable.
func (g *Gate[S]) Request(ctx context.Context, c sandboxmcp.Caller, s S, ask Ask) (asked sandboxmcp.Approval, fresh bool, err error) {
	text, digest, err := g.kind.canonical(c.Namespace, s)
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
		if a, failed = g.findSame(ctx, tx, c.Namespace, digest, now); !errors.Is(failed, sql.ErrNoRows) {
			return failed
		}
		if failed = g.checkQuota(ctx, tx, c.Namespace, now); failed != nil {
			return failed
		}
		g.asked.add(c.Namespace, now)
		a = approval[S]{subject: s, state: whole, info: sandboxmcp.Approval{
			ID: newID("apr"), Subject: g.kind.subject(s), Namespace: c.Namespace, Status: sandboxmcp.ApprovalPending, SHA256: digest,
			RequestedBy: c.Actor, SessionID: ask.SessionID, RequestID: ask.RequestID, RequestedAt: now, ExpiresAt: now.Add(PendingFor),
		}}
		a.info.Reason, a.info.ReasonFrom = shown(reason, ask.RequestID)
		fresh = true
		i := a.info
		failed = g.cfg.Audit.Op(&sandboxmcp.AuditEntry{
			Action: g.kind.Asked, Phase: sandboxmcp.PhaseIntent, Namespace: c.Namespace, RequestID: ask.RequestID, SessionID: ask.SessionID, Actor: c.Actor, Detail: s.String(),
			Metadata: map[string]any{"approval_id": i.ID, g.kind.Member: s.String(), "sha256": digest, "reason_bytes": len(ask.Reason), "reason_sha256": digestOf(ask.Reason), "expires_at": format(i.ExpiresAt)},
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
		g.bell.ring(a.info, s.String())
		g.emit(g.kind.Events.Requested, a.info.Namespace, s.String()+" was asked for", map[string]any{g.kind.Member: s.String(), "approval_id": a.info.ID, "expires_at": a.info.ExpiresAt})
	}
	return a.info, fresh, nil
}

// known finds an earlier question with the same subject. It fails with queue_full if there
// is none and the namespace may not ask a further one. It writes nothing. Programs may ask
// as fast as they can, and each write would wake every process that waits.
func (g *Gate[S]) known(ctx context.Context, ns sandboxmcp.Namespace, digest string) (a approval[S], known bool, err error) {
	now := g.now()
	a, err = g.findSame(ctx, g.cfg.Store.DB(), ns, digest, now)
	switch {
	case err == nil:
		return a, a.info.Status != sandboxmcp.ApprovalPending || now.Before(a.info.ExpiresAt), nil
	case !errors.Is(err, sql.ErrNoRows):
		return a, false, g.unreadable(err)
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
func (g *Gate[S]) findSame(ctx context.Context, db store.Querier, ns sandboxmcp.Namespace, digest string, now time.Time) (approval[S], error) {
	all, err := g.selectApprovals(ctx, db, selectSame, ns, digest, format(now.Add(-deniedFor)), format(now), madeUntil(now))
	if err != nil {
		return approval[S]{}, err
	}
	for _, a := range all {
		if a.info.Status == sandboxmcp.ApprovalDenied && a.decided.After(now.Add(clockSlack)) {
			continue // the clock was set back since, and the denial would hold until it has come to that time again
		}
		if a.info.Status != sandboxmcp.ApprovalApproved {
			return a, nil
		}
		if have, err := g.grantOf(ctx, db, a.grant); err != nil || have != nil {
			return a, err
		}
	}
	return approval[S]{}, sql.ErrNoRows
}

func (g *Gate[S]) selectApprovals(ctx context.Context, db store.Querier, query string, args ...any) (all []approval[S], err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		a, err := g.scanApproval(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, rows.Err()
}

// checkQuota fails with queue_full if too many questions are pending or were asked within a
// minute. The questions of other namespaces never keep a namespace from its first one.
func (g *Gate[S]) checkQuota(ctx context.Context, db store.Querier, ns sandboxmcp.Namespace, now time.Time) error {
	var own, all int
	if err := db.QueryRowContext(ctx, countPending, ns, format(now)).Scan(&own, &all); err != nil {
		return err
	}
	if own >= maxPending || own > 0 && all >= maxPendingAll {
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "%d requests already wait for a person", own).
			WithHint("ask again once some are answered: "+g.kind.command("list")).With("limit", maxPending)
	}
	if g.asked.full(ns, now) {
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "more than %d %ss were requested within a minute", newPerMinute, g.kind.Noun).
			WithHint("ask again in a minute, and only for what is needed").With("limit", newPerMinute)
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
func (g *Gate[S]) Find(ctx context.Context, ns sandboxmcp.Namespace, id string) (sandboxmcp.Approval, error) {
	a, err := g.find(ctx, id)
	if err == nil && ns != "" && a.info.Namespace != ns {
		return sandboxmcp.Approval{}, g.unknown(id)
	}
	return a.info, err
}

func (g *Gate[S]) find(ctx context.Context, id string) (approval[S], error) {
	a, err := g.scanApproval(g.cfg.Store.DB().QueryRowContext(ctx, selectApproval, id))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return a, g.unknown(id)
	case err != nil:
		return a, g.unreadable(err)
	case a.state == foreign:
		return a, g.unknown(id)
	}
	if a.info.Status == sandboxmcp.ApprovalPending && !g.now().Before(a.info.ExpiresAt) {
		a.info.Status = sandboxmcp.ApprovalExpired
	}
	return a, nil
}

func (g *Gate[S]) unknown(id string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no approval %s is known", sandboxmcp.Quote(id)).
		WithHint("see " + g.kind.command("list"))
}

// Wait waits until a question is answered, by any process, or expires, and returns it. If
// ctx ends first, Wait returns the question as still pending. It also returns early once
// open reports true; open is called after every change of a question or a grant.
func (g *Gate[S]) Wait(ctx context.Context, id string, open func() bool) (sandboxmcp.Approval, error) {
	for {
		version, err := g.watch.Version(context.WithoutCancel(ctx))
		if err != nil {
			return sandboxmcp.Approval{}, g.unreadable(err)
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
func (g *Gate[S]) waitChange(ctx context.Context, since int64, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	_ = g.watch.Wait(ctx, since)
}
