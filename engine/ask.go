package engine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/packages"
)

// openPackageGate makes the gate that asks persons about packages.
func (e *Engine) openPackageGate() {
	c := e.cfg
	e.asks = gate.New(gate.Config[gate.Package]{
		Kind: gate.Packages(), Store: e.store, Audit: e.audit, Key: e.key.Derive, Endings: e.endings, Approvals: c.Packages == string(packages.Ask), Now: c.Now,
		Events: e.events, Notices: c.Notices, Invocation: c.Invocation, Logger: c.Logger,
	})
}

// asker returns a function that asks a person about packages of an installation. It asks one question about
// all packages that are not allowed yet.
func (e *Engine) asker(i *installation) func(context.Context, sandboxmcp.Language, []string) error {
	who := gate.Who{Namespace: i.who.Namespace, SessionID: i.session, RequestID: i.request, Born: e.born(i.who.Namespace, i.session)}
	if who.RequestID == "" { // a grant for one run is for one installation
		who.RequestID = sandboxmcp.RequestID(uuid.NewString())
	}
	return func(ctx context.Context, l sandboxmcp.Language, names []string) error {
		closed, err := e.closedPackages(ctx, who, l, names)
		for part := range slices.Chunk(closed, gate.MaxPackages) {
			if err == nil {
				err = e.askFor(ctx, i, who, l, part)
			}
		}
		return err
	}
}

// born returns the time at which a session was made. If it is not made yet, born returns the present time, so that
// grants for an earlier session with the same id do not apply.
func (e *Engine) born(ns sandboxmcp.Namespace, id sandboxmcp.SessionID) time.Time {
	if id == "" {
		return time.Time{}
	}
	if s, err := e.sessions.Find(e.ctx, ns, id); err == nil {
		return s.Info().CreatedAt
	}
	return e.cfg.Now()
}

// closedPackages returns the packages that are not open to who. A grant for one run that opens one of
// the others now belongs to who's run.
func (e *Engine) closedPackages(ctx context.Context, who gate.Who, l sandboxmcp.Language, names []string) ([]string, error) {
	var closed []string
	for _, name := range names {
		p, err := gate.ParsePackage(string(l) + ":" + name)
		if err != nil {
			return nil, err
		}
		_, ok, err := e.asks.Allows(ctx, who, func(open gate.Package) bool { return open.Covers(p) })
		if err != nil {
			return nil, err
		}
		if !ok {
			closed = append(closed, name)
		}
	}
	return closed, nil
}

// askFor asks a person for packages. It does not wait for the answer. If they were opened
// meanwhile, they are judged again, because a question does not use a grant.
func (e *Engine) askFor(ctx context.Context, i *installation, who gate.Who, l sandboxmcp.Language, names []string) error {
	p, err := gate.ParsePackage(string(l) + ":" + strings.Join(names, ","))
	if err != nil {
		return err
	}
	q, err := e.asks.Question(ctx, i.who, p, gate.Ask{SessionID: i.session, Born: who.Born})
	if err != nil {
		return err
	}
	masks, err := e.masks(ctx, i.who.Namespace, i.session)
	if err != nil {
		return err
	}
	a := q.Answer
	if !q.Answered {
		if a, err = e.asks.Ask(ctx, q, masks, 0); err != nil {
			return err
		}
	}
	switch a.Status { //nolint:exhaustive // an answer is never expired
	case sandboxmcp.ApprovalApproved:
		closed, err := e.closedPackages(ctx, who, l, names)
		if err == nil && len(closed) > 0 {
			err = sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "what a person has allowed was used by another installation").WithHint("install the packages again").With("package", p.String())
		}
		return err
	case sandboxmcp.ApprovalPending:
		return sandboxmcp.Errorf(sandboxmcp.CodeApprovalPending, "a person has to allow %s first", p).WithHint(a.HowToApprove).
			With("package", p.String()).With("approval_id", a.ApprovalID).With("how_to_approve", a.HowToApprove).With("expires_at", a.ExpiresAt)
	}
	return sandboxmcp.Errorf(sandboxmcp.CodePackageRejected, "a person has denied %s", p).WithHint(a.HowToApprove).With("package", p.String())
}

// PackageAccess lists the packages that persons were asked for and that they have allowed. It
// accepts EveryNamespace.
func (e *Engine) PackageAccess(ctx context.Context, c sandboxmcp.Caller) (sandboxmcp.AccessList, error) {
	l, err := e.asks.List(ctx, e.listed(c))
	if err == nil {
		l.Granted, err = e.usable(ctx, l.Granted)
	}
	return l, err
}

// usable returns the grants without those for sessions that have ended.
func (e *Engine) usable(ctx context.Context, grants []sandboxmcp.AccessGrant) ([]sandboxmcp.AccessGrant, error) {
	kept := make([]sandboxmcp.AccessGrant, 0, len(grants))
	for _, g := range grants {
		if g.Scope == sandboxmcp.GrantSession {
			since, err := e.sessions.Since(ctx, g.Namespace, g.SessionID)
			if sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionNotFound {
				continue
			}
			if err != nil {
				return grants, err
			}
			if g.GrantedAt.Before(since) { // the grant was for an earlier session of the id
				continue
			}
		}
		kept = append(kept, g)
	}
	return kept, nil
}

// DecidePackage carries out a person's decision on a package. An MCP tool never calls it. It
// accepts EveryNamespace for a decision with an ID.
func (e *Engine) DecidePackage(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	c, err := e.decider(ctx, c, d)
	if err != nil {
		return sandboxmcp.AccessAnswer{}, err
	}
	a, _, err := e.asks.Decide(ctx, c, d)
	return a, err
}

// RevokePackage ends what persons have allowed for a package such as python:requests. What is
// installed stays. It fails with request_not_found if there is no such grant.
func (e *Engine) RevokePackage(ctx context.Context, c sandboxmcp.Caller, name string) (sandboxmcp.AccessRevoked, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.AccessRevoked{}, err
	}
	return e.asks.Revoke(ctx, c, name)
}
