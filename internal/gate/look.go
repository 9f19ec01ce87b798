package gate

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// grant is a row of grants.
type grant struct {
	info    sandboxmcp.EgressGrant
	domain  sandboxmcp.Domain
	expires time.Time // zero: never
}

// clockSlack is how far the clock may be set back without an effect on grants.
const clockSlack = time.Minute

// fits reports whether a grant is in force for a subject at a time. A grant with an end is
// not in force before it was made: the clock was set back, so its end would come too late.
func (n grant) fits(who Who, now time.Time) bool {
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

// current returns the grants of each namespace, made by any process. The caller must not
// modify them.
func (g *Gate) current(ctx context.Context) (map[sandboxmcp.Namespace][]grant, error) {
	all, err := g.grants.Get(ctx)
	if err != nil {
		return nil, unreadable(err)
	}
	return all, nil
}

// readAll reads the grants of each namespace.
func (g *Gate) readAll(ctx context.Context) (map[sandboxmcp.Namespace][]grant, error) {
	all, err := g.readGrants(ctx, "")
	if err != nil {
		return nil, err
	}
	of := map[sandboxmcp.Namespace][]grant{}
	for _, n := range all {
		of[n.info.Namespace] = append(of[n.info.Namespace], n)
	}
	return of, nil
}

func unreadable(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the request was cancelled").WithCause(err)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the grants cannot be read, so every domain is closed").
		WithHint("check the disk and the rights of the state directory").WithCause(err)
}

// readGrants reads the grants in force of one namespace, or of all if ns is empty.
func (g *Gate) readGrants(ctx context.Context, ns sandboxmcp.Namespace) ([]grant, error) {
	rows, err := g.cfg.Store.DB().QueryContext(ctx, selectGrants, format(g.now()), ns, ns)
	if err != nil {
		return nil, unreadable(err)
	}
	defer func() { _ = rows.Close() }()
	var all []grant
	for rows.Next() {
		n, ok, err := scanGrant(rows)
		if err != nil {
			return nil, unreadable(err)
		}
		if !ok {
			g.cfg.Logger.Error("a grant in the state directory was changed after its approval; it opens nothing", "grant", n.info.ID)
			continue
		}
		all = append(all, n)
	}
	if err := rows.Err(); err != nil {
		return nil, unreadable(err)
	}
	return all, nil
}

// scanGrant reads a row. ok is false if the row was modified outside of this program.
func scanGrant(row interface{ Scan(dest ...any) error }) (n grant, ok bool, err error) {
	var text, digest, granted, expires string
	i := &n.info
	if err = row.Scan(&i.ID, &i.Namespace, &text, &digest, &i.Scope, &i.SessionID, &i.RequestID, &i.ApprovalID, &i.GrantedBy, &granted, &expires); err != nil {
		return n, false, err
	}
	n.domain, ok = reading(text, digest)
	i.Domain, i.GrantedAt = n.domain.String(), parse(granted)
	if expires != "" {
		n.expires = parse(expires)
		i.ExpiresAt = &n.expires
		ok = ok && !n.expires.IsZero()
	}
	if _, mine, err := canonical(i.Namespace, n.domain); err != nil || mine != digest {
		ok = false // the text belongs to another namespace
	}
	return n, ok, nil
}

// Open returns the domains that are open to who, the operator's first.
func (g *Gate) Open(ctx context.Context, who Who) ([]sandboxmcp.Domain, error) {
	open := append([]sandboxmcp.Domain(nil), g.cfg.Operator...)
	if !g.cfg.Approvals {
		return open, nil
	}
	all, err := g.current(ctx)
	if err != nil {
		return nil, err
	}
	now := g.now()
	for _, n := range all[who.Namespace] {
		if n.fits(who, now) {
			open = append(open, n.domain)
		}
	}
	return open, nil
}

// Allows reports whether the subject who may connect to a host and port. It also returns
// the domain that allows it. If that is an unused grant for one run, the grant now belongs
// to this run.
func (g *Gate) Allows(ctx context.Context, who Who, h sandboxmcp.Host, port int) (rule string, ok bool, err error) {
	for _, d := range g.cfg.Operator {
		if d.Match(h, port) {
			return d.String(), true, nil
		}
	}
	if !g.cfg.Approvals {
		return "", false, nil
	}
	all, err := g.current(ctx)
	if err != nil {
		return "", false, err
	}
	now := g.now()
	var once []grant
	for _, n := range all[who.Namespace] {
		if !n.fits(who, now) || !n.domain.Match(h, port) {
			continue
		}
		if n.info.Scope == sandboxmcp.GrantOnce && n.info.RequestID == "" {
			once = append(once, n)
			continue
		}
		return n.info.Domain, true, nil
	}
	for _, n := range once {
		if taken, err := g.take(ctx, n, who); taken || err != nil {
			return n.info.Domain, taken, err
		}
	}
	return "", false, nil
}

// take assigns a grant for one run to who's run. It returns false if another run has it.
func (g *Gate) take(ctx context.Context, n grant, who Who) (bool, error) {
	taken := false
	err := g.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		taken = false
		done, err := tx.ExecContext(ctx, takeGrant, who.RequestID, n.info.ID, who.RequestID, format(g.now()))
		if err != nil {
			return err
		}
		if rows, err := done.RowsAffected(); err != nil || rows == 0 {
			return err
		}
		taken = true
		return g.cfg.Audit.Op(&sandboxmcp.AuditEntry{
			Action: actionApproval, Phase: sandboxmcp.PhaseOutcome, Namespace: who.Namespace, RequestID: who.RequestID, SessionID: who.SessionID, Actor: "gate",
			Detail: "used once: " + n.info.Domain, Metadata: map[string]any{"grant_id": n.info.ID, "domain": n.info.Domain},
		})(ctx, tx)
	})
	return taken && err == nil, err
}

// Covers reports whether all of d is open to who, and until when. until is nil if no end is
// known.
func (g *Gate) Covers(ctx context.Context, who Who, d sandboxmcp.Domain) (ok bool, until *time.Time, err error) {
	if Covered(g.cfg.Operator, d) || !g.cfg.Approvals {
		return Covered(g.cfg.Operator, d), nil, nil
	}
	all, err := g.current(ctx)
	if err != nil {
		return false, nil, err
	}
	now := g.now()
	open := append([]sandboxmcp.Domain(nil), g.cfg.Operator...)
	for _, n := range all[who.Namespace] {
		if !n.fits(who, now) {
			continue
		}
		open = append(open, n.domain)
		if n.domain.Covers(d) && (!ok || n.expires.IsZero() || until != nil && n.expires.After(*until)) {
			ok, until = true, nil
			if at := n.expires; !at.IsZero() {
				until = &at
			}
		}
	}
	return Covered(open, d), until, nil
}

// Covered reports whether the domains together cover d. A d without a port means ports 80
// and 443, and two different domains may cover these.
func Covered(open []sandboxmcp.Domain, d sandboxmcp.Domain) bool {
	one := func(d sandboxmcp.Domain) bool {
		for _, o := range open {
			if o.Covers(d) {
				return true
			}
		}
		return false
	}
	if one(d) || d.Port != 0 {
		return one(d)
	}
	plain, secure := d, d
	plain.Port, secure.Port = 80, 443
	return one(plain) && one(secure)
}

// List returns the questions and grants of a namespace, or of all if ns is empty, and the
// operator's domains.
func (g *Gate) List(ctx context.Context, ns sandboxmcp.Namespace) (sandboxmcp.EgressList, error) {
	l := sandboxmcp.EgressList{Pending: []sandboxmcp.Approval{}, Granted: []sandboxmcp.EgressGrant{}, Operator: []string{}}
	for _, d := range g.cfg.Operator {
		l.Operator = append(l.Operator, d.String())
	}
	var all []grant
	var err error
	if g.cfg.Approvals { // without approvals no grant is in force
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
func (g *Gate) pending(ctx context.Context, ns sandboxmcp.Namespace) ([]sandboxmcp.Approval, error) {
	rows, err := g.cfg.Store.DB().QueryContext(ctx, selectPending, format(g.now()), ns, ns)
	if err != nil {
		return nil, unreadable(err)
	}
	defer func() { _ = rows.Close() }()
	list := []sandboxmcp.Approval{}
	for rows.Next() {
		a, err := scanApproval(rows)
		if err != nil {
			return nil, unreadable(err)
		}
		list = append(list, a.info)
	}
	if err := rows.Err(); err != nil {
		return nil, unreadable(err)
	}
	return list, nil
}
