package gate

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// grant is a row of grants.
type grant[S Subject[S]] struct {
	info    sandboxmcp.AccessGrant
	subject S
	expires time.Time // zero: never
	row     stored
}

// clockSlack is how far the clock may be set back without an effect on grants and denials. The clock of each server is at most
// a minute from that of a database that they share.
const clockSlack = 3 * time.Minute

// fits reports whether a grant is in force for a subject at a time. A grant with an end is
// not in force before it was made: the clock was set back, so its end would come too late.
func (n grant[S]) fits(who Who, now time.Time) bool {
	if !n.expires.IsZero() && (!now.Before(n.expires) || n.info.GrantedAt.After(now.Add(clockSlack))) {
		return false
	}
	switch n.info.Scope {
	case sandboxmcp.GrantSession:
		return n.info.SessionID == who.SessionID && who.SessionID != "" && !n.info.GrantedAt.Before(who.Born)
	case sandboxmcp.GrantOnce:
		return who.RequestID != "" && (n.info.RequestID == "" || n.info.RequestID == who.RequestID)
	case sandboxmcp.GrantDuration:
		return !n.expires.IsZero()
	case sandboxmcp.GrantAlways:
		return true
	}
	return false
}

// madeUntil returns the time until which grants that have an end may have been made, for
// the database.
func madeUntil(now time.Time) string { return format(now.Add(clockSlack)) }

// current returns the grants that are in force for who, made by any process. What this process has learned of the record since
// it has read their rows ends them as well.
func (g *Gate[S]) current(ctx context.Context, who Who) (in []grant[S], err error) {
	all, err := g.grants.Get(ctx)
	if err != nil || len(all[who.Namespace]) == 0 {
		return nil, g.unreadable(err)
	}
	agrees, err := g.endings.latest(ctx, g.cfg.Store.DB())
	if err != nil {
		return nil, g.unreadable(err)
	}
	now := g.now()
	for _, n := range all[who.Namespace] {
		if n.info.Scope == sandboxmcp.GrantOnce && n.info.RequestID != "" && !g.endings.takenBy(n.info.ID, who.RequestID) {
			continue // an earlier run of the same id has used it
		}
		if row := n.row.usedBy(who); n.fits(who, now) && agrees(&row) {
			in = append(in, n)
		}
	}
	return in, nil
}

// readAll reads the grants of each namespace.
func (g *Gate[S]) readAll(ctx context.Context) (map[sandboxmcp.Namespace][]grant[S], error) {
	all, err := g.readGrants(ctx, "")
	if err != nil {
		return nil, err
	}
	of := map[sandboxmcp.Namespace][]grant[S]{}
	for _, n := range all {
		of[n.info.Namespace] = append(of[n.info.Namespace], n)
	}
	return of, nil
}

// unreadable returns the error of grants that could not be read, or nil if err is.
func (g *Gate[S]) unreadable(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the request was cancelled").WithCause(err)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the grants cannot be read, so %s", g.kind.Closed).
		WithHint("check the disk and the rights of the state directory").WithCause(err)
}

// readGrants reads the grants in force of one namespace, or of all if ns is empty.
func (g *Gate[S]) readGrants(ctx context.Context, ns sandboxmcp.Namespace) ([]grant[S], error) {
	db := g.cfg.Store.DB()
	rows, err := store.Select(ctx, db, (*stored).scan, selectGrants, format(g.now()), ns, ns)
	if err != nil {
		return nil, g.unreadable(err)
	}
	all, err := g.judge(ctx, db, rows)
	if err != nil {
		return nil, g.unreadable(err)
	}
	return all, nil
}

// judge returns the grants of this kind whose rows are in force. It logs the rows that are forged, put back, or made by a
// release without MACs, and skips those of other kinds.
func (g *Gate[S]) judge(ctx context.Context, db store.Querier, rows []stored) (all []grant[S], err error) {
	var agrees func(r *stored) bool // nil: the record was not read yet
	var lapsed []string
	var example string
	now := g.now()
	for _, r := range rows {
		n, state := g.read(r)
		switch state {
		case foreign:
			continue
		case lapsing:
			lapsed, example = append(lapsed, r.id), g.kind.Grant(n.subject.String())
			continue
		case changed:
			g.told.fault(reasonForged, &r)
			continue
		case whole:
		}
		if agrees == nil {
			if agrees, err = g.endings.judge(ctx, db); err != nil {
				return nil, err
			}
		}
		if !agrees(&r) {
			again, err := store.Select(ctx, db, (*stored).scan, selectOne, r.id) // the entry may be younger than the row; then that has changed by now
			if err != nil {
				return nil, err
			}
			if len(again) > 0 && !agrees(&again[0]) {
				g.told.fault(reasonBack, &r)
			}
			continue
		}
		if n.expires.IsZero() || now.Before(n.expires) { // to the statement, an end that is a blob would be later than now
			all = append(all, n)
		}
	}
	g.told.lapsed(lapsed, example)
	return all, nil
}

// read decodes a row. state says whether the row is a grant of this kind with a right MAC.
func (g *Gate[S]) read(r stored) (n grant[S], state reading) {
	n.row = r
	n.info = sandboxmcp.AccessGrant{
		ID: r.id, Namespace: sandboxmcp.Namespace(r.namespace), Scope: sandboxmcp.GrantScope(r.scope), SessionID: sandboxmcp.SessionID(r.session), RequestID: sandboxmcp.RequestID(r.request),
		ApprovalID: r.approval, GrantedBy: r.actor, GrantedAt: parse(r.granted), Status: sandboxmcp.GrantOpen,
	}
	i := &n.info
	n.subject, state = g.kind.read(i.Namespace, r.subject, r.digest)
	i.Subject = g.kind.subject(n.subject)
	if i.Scope == sandboxmcp.GrantOnce && i.RequestID != "" {
		i.Status = sandboxmcp.GrantUsed
	}
	if r.expires != "" {
		n.expires = parse(r.expires)
		i.ExpiresAt = &n.expires
	}
	switch {
	case state != whole:
	case !r.mac.Valid:
		state = lapsing
	case r.expires != "" && n.expires.IsZero(), !g.macs.Fit(r.mac.String, r.columns()...):
		state = changed
	}
	return n, state
}

// first returns the first grant in force among the rows that a statement selects, or nil if there is none.
func (g *Gate[S]) first(ctx context.Context, db store.Querier, query string, args ...any) (*sandboxmcp.AccessGrant, error) {
	rows, err := store.Select(ctx, db, (*stored).scan, query, args...)
	if err != nil {
		return nil, err
	}
	all, err := g.judge(ctx, db, rows)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0].info, nil
}

// Open returns the subjects that are open to who, the operator's first.
func (g *Gate[S]) Open(ctx context.Context, who Who) ([]S, error) {
	open := append([]S(nil), g.operatorFor(who)...)
	if !g.asking.Load() {
		return open, nil
	}
	all, err := g.current(ctx, who)
	if err != nil {
		return nil, err
	}
	for _, n := range all {
		open = append(open, n.subject)
	}
	return open, nil
}

// Allows reports whether a subject that matches is open to who, and which. If that is an
// unused grant for one run, the grant now belongs to this run.
func (g *Gate[S]) Allows(ctx context.Context, who Who, match func(S) bool) (rule S, ok bool, err error) {
	return g.AllowsSince(ctx, who, func(s S, _ time.Time) bool { return match(s) })
}

// AllowsSince is [Gate.Allows] for a match that depends on when a person has opened the subject. That is the zero time for what
// the settings open.
func (g *Gate[S]) AllowsSince(ctx context.Context, who Who, match func(s S, made time.Time) bool) (rule S, ok bool, err error) {
	for _, s := range g.operatorFor(who) {
		if match(s, time.Time{}) {
			return s, true, nil
		}
	}
	if !g.asking.Load() {
		return rule, false, nil
	}
	all, err := g.current(ctx, who)
	if err != nil {
		return rule, false, err
	}
	var once []grant[S]
	for _, n := range all {
		if !match(n.subject, n.info.GrantedAt) {
			continue
		}
		if n.info.Scope == sandboxmcp.GrantOnce && n.info.RequestID == "" {
			once = append(once, n)
			continue
		}
		return n.subject, true, nil
	}
	for _, n := range once {
		if taken, err := g.take(ctx, n, who); taken || err != nil {
			return n.subject, taken, err
		}
	}
	return rule, false, nil
}

// take assigns a grant for one run to who's run. It returns false if another run has it.
func (g *Gate[S]) take(ctx context.Context, n grant[S], who Who) (bool, error) {
	used := n.row.usedBy(who)
	mac, err := g.macs.Of(used.columns()...)
	if err != nil {
		return false, err
	}
	taken := false
	g.endings.take(n.info.ID, who.RequestID)
	err = g.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		taken = false
		// Another run may have used it since its row was read, and a trigger of a writer of the database may have put it back.
		agrees, failed := g.endings.judge(ctx, tx)
		if failed != nil || !agrees(&used) {
			return failed
		}
		done, failed := tx.ExecContext(ctx, takeGrant, who.RequestID, mac, n.info.ID, n.row.mac.String, format(g.now()))
		if failed != nil {
			return failed
		}
		if rows, failed := done.RowsAffected(); failed != nil || rows == 0 {
			return failed
		}
		taken = true
		return g.cfg.Audit.Op(&sandboxmcp.AuditEntry{
			Action: actionApproval, Phase: sandboxmcp.PhaseOutcome, Namespace: who.Namespace, RequestID: who.RequestID, SessionID: who.SessionID, Actor: "gate",
			Detail: "used once: " + n.subject.String(), Metadata: map[string]any{"grant_id": n.info.ID, g.kind.Member: n.subject.String()},
		})(ctx, tx)
	})
	if taken = taken && err == nil; taken {
		g.endings.used(n.info.ID, string(who.RequestID))
	}
	return taken, err
}

// Covers reports whether all of s is open to who, and until when. until is nil if no end is
// known.
func (g *Gate[S]) Covers(ctx context.Context, who Who, s S) (ok bool, until *time.Time, err error) {
	settings := g.operatorFor(who)
	if g.kind.covered(settings, s) || !g.asking.Load() {
		return g.kind.covered(settings, s), nil, nil
	}
	all, err := g.current(ctx, who)
	if err != nil {
		return false, nil, err
	}
	open := append([]S(nil), settings...)
	for _, n := range all {
		open = append(open, n.subject)
		if n.subject.Covers(s) && (!ok || n.expires.IsZero() || until != nil && n.expires.After(*until)) {
			ok, until = true, nil
			if at := n.expires; !at.IsZero() {
				until = &at
			}
		}
	}
	return g.kind.covered(open, s), until, nil
}

// List returns the questions and grants of a namespace, or of all if ns is empty, and the
// operator's subjects.
func (g *Gate[S]) List(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.AccessList, error) {
	l := sandboxmcp.AccessList{Pending: []sandboxmcp.Approval{}, Granted: []sandboxmcp.AccessGrant{}, Operator: []string{}}
	for _, s := range g.operator() {
		l.Operator = append(l.Operator, s.String())
	}
	var all []grant[S]
	var err error
	if g.asking.Load() { // without approvals no grant is in force
		if all, err = g.readGrants(ctx, ns); err != nil {
			return l, err
		}
	}
	until := g.now().Add(clockSlack)
	for _, n := range all {
		if n.expires.IsZero() || !n.info.GrantedAt.After(until) {
			l.Granted = append(l.Granted, n.info)
		}
	}
	l.Pending, err = g.pending(ctx, ns)
	return l, err
}

// pending reads the pending questions, oldest first.
func (g *Gate[S]) pending(ctx context.Context, ns sandboxmcp.Namespace) ([]sandboxmcp.Approval, error) {
	rows, err := g.cfg.Store.DB().QueryContext(ctx, selectPending, format(g.now()), ns, ns)
	if err != nil {
		return nil, g.unreadable(err)
	}
	defer func() { _ = rows.Close() }()
	list := []sandboxmcp.Approval{}
	for rows.Next() {
		a, err := g.scanApproval(rows)
		if err != nil {
			return nil, g.unreadable(err)
		}
		if a.state == foreign {
			continue
		}
		list = append(list, a.info)
	}
	if err := rows.Err(); err != nil {
		return nil, g.unreadable(err)
	}
	return list, nil
}
