package app

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// everywhere calls work for each running server, because each may have its own store. If
// servers share a store, only the first call has an effect. If no server knows the item,
// work is called for the state directory. It returns the first error, except errors of
// servers that do not know the item.
func (a *App) everywhere(ctx context.Context, cfg *config.Config, work func(sandboxmcp.Service) error) error {
	peers, err := a.Servers(ctx, cfg, Place{})
	if err != nil {
		return err
	}
	done := false
	for _, c := range peers {
		err := work(c)
		switch sandboxmcp.CodeOf(err) {
		case "":
			done = true
		case sandboxmcp.CodeRequestNotFound, sandboxmcp.CodeNotFound: // the item is unknown there, or the server does not support this kind
		case sandboxmcp.CodeInternal:
			a.Say("server " + c.Peer().ID + ": " + err.Error())
		default:
			return err
		}
	}
	if done || ctx.Err() != nil {
		return ctx.Err()
	}
	return a.WithEngine(ctx, cfg, func(e Engine) error { return work(e) })
}

// Egress lists pending approvals and grants of all servers, without duplicates.
func (a *App) Egress(ctx context.Context, cfg *config.Config, who sandboxmcp.Caller) (sandboxmcp.AccessList, error) {
	var sum sandboxmcp.AccessList
	err := a.everywhere(ctx, cfg, func(c sandboxmcp.Service) error {
		l, failed := c.Egress(ctx, who)
		sum.Pending, sum.Granted, sum.Operator = append(sum.Pending, l.Pending...), append(sum.Granted, l.Granted...), append(sum.Operator, l.Operator...)
		return failed
	})
	sum.Pending = eachApproval(sum.Pending)
	sum.Granted = each(sum.Granted, func(g sandboxmcp.AccessGrant) (time.Time, string) { return g.GrantedAt, g.ID })
	slices.Sort(sum.Operator)
	sum.Operator = append([]string{}, slices.Compact(sum.Operator)...)
	return sum, err
}

// Access is a kind of access that persons grant at the terminal.
type Access struct {
	decide func(s sandboxmcp.Service, ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error)
	revoke func(s sandboxmcp.Service, ctx context.Context, c sandboxmcp.Caller, subject string) (sandboxmcp.AccessRevoked, error)
	off    sandboxmcp.Code                // code of a server that has approvals of the kind turned off; empty: none has
	permit func(cfg *config.Config) error // fails if the settings of the command forbid a grant; nil: they never do
}

// AccessToDomains is the access of programs to domains.
func AccessToDomains() Access {
	return Access{
		decide: sandboxmcp.Service.DecideEgress, revoke: sandboxmcp.Service.RevokeEgress, off: sandboxmcp.CodeNetworkDisabled,
		permit: func(cfg *config.Config) error {
			if cfg.EgressApprovals {
				return nil
			}
			return sandboxmcp.Errorf(sandboxmcp.CodeNetworkDisabled, "approvals are off in the settings of this command, so nothing was opened").
				WithHint("unset egress_approvals (SANDBOXMCP_EGRESS_APPROVALS), or add the domain to allowed_domains")
		},
	}
}

// AccessToCommands is the access of models to commands of the host.
func AccessToCommands() Access {
	return Access{decide: sandboxmcp.Service.DecideHostAccess, revoke: sandboxmcp.Service.RevokeHostAccess, off: sandboxmcp.CodeHostAccessDisabled}
}

// AccessToPackages is the access of models and programs to packages.
func AccessToPackages() Access {
	return Access{decide: sandboxmcp.Service.DecidePackage, revoke: sandboxmcp.Service.RevokePackage, off: sandboxmcp.CodePackageRejected}
}

// Decide carries out the decision of the person at the terminal in every running server,
// because each may have its own store. It first asks all of them whether they accept it. If
// one refuses, or the settings of this command turn approvals off, nothing changes. A
// question belongs to the servers that know it: of those, one that has approvals turned off
// is named and left out.
func (a *App) Decide(ctx context.Context, cfg *config.Config, to Access, who sandboxmcp.Caller, d sandboxmcp.AccessDecision) (answer sandboxmcp.AccessAnswer, err error) {
	if to.permit != nil && !d.Deny {
		if err = to.permit(cfg); err != nil {
			return answer, err
		}
	}
	able, off, err := a.accepting(ctx, cfg, to, who, d)
	switch {
	case err != nil:
		return answer, err
	case len(able) == 0 && off != nil:
		return answer, off
	case len(able) == 0:
		err = a.WithEngine(ctx, cfg, func(e Engine) (failed error) {
			answer, failed = to.decide(e, ctx, who, d)
			return failed
		})
		return answer, err
	}
	var in []string
	for _, c := range able {
		if len(in) > 0 && d.Scope == sandboxmcp.GrantOnce { // a grant for one run needs to be made in only one server
			break
		}
		got, failed := to.decide(c, ctx, who, d)
		if failed != nil {
			return answer, partly(failed, c, "decided", in)
		}
		answer, in = got, append(in, c.Peer().ID)
	}
	return answer, nil
}

// accepting returns the running servers that accept a decision. It fails if one refuses. off
// is the refusal of a server that knows the question and has approvals turned off.
func (a *App) accepting(ctx context.Context, cfg *config.Config, to Access, who sandboxmcp.Caller, d sandboxmcp.AccessDecision) (able []*api.Client, off, err error) {
	peers, err := a.Servers(ctx, cfg, Place{})
	if err != nil {
		return nil, nil, err
	}
	d.Check = true
	var closed []string
	for _, c := range peers {
		_, failed := to.decide(c, ctx, who, d)
		switch code := sandboxmcp.CodeOf(failed); {
		case failed == nil:
			able = append(able, c)
		case code == sandboxmcp.CodeRequestNotFound || code == sandboxmcp.CodeNotFound: // the question is unknown there, or the server does not support this kind
		case code == sandboxmcp.CodeInternal:
			a.Say("server " + c.Peer().ID + ": " + failed.Error())
		case code == to.off && d.ID != "":
			off, closed = failed, append(closed, c.Peer().ID)
		default:
			return nil, nil, partly(failed, c, "", nil)
		}
	}
	if len(able) > 0 && len(closed) > 0 {
		a.Say("it stays closed in server " + strings.Join(closed, ", ") + ", where approvals are off")
	}
	return able, off, ctx.Err()
}

// partly adds to the error of a server which server it is, and in which ones the work is done.
func partly(err error, c *api.Client, done string, in []string) error {
	e := *sandboxmcp.AsError(err)
	e.Message = "server " + c.Peer().ID + ": " + e.Message
	if len(in) > 0 {
		e.Message += "; it is " + done + " in server " + strings.Join(in, ", ")
	}
	return &e
}

// Revoke ends what persons have granted for a subject, in every running server. If one
// fails, the others revoke it all the same, and the error names them.
func (a *App) Revoke(ctx context.Context, cfg *config.Config, to Access, subject string) (done sandboxmcp.AccessRevoked, err error) {
	peers, err := a.Servers(ctx, cfg, Place{})
	if err != nil {
		return done, err
	}
	var in []string
	var failed *api.Client
	for _, c := range peers {
		r, broken := to.revoke(c, ctx, Me(cfg), subject)
		switch sandboxmcp.CodeOf(broken) {
		case "":
			done.Subject, done.Revoked, in = r.Subject, done.Revoked+r.Revoked, append(in, c.Peer().ID)
		case sandboxmcp.CodeRequestNotFound, sandboxmcp.CodeNotFound: // it has no such grant, or does not support this kind
		default:
			failed, err = c, broken
		}
	}
	switch {
	case err != nil:
		return done, partly(err, failed, "revoked", in)
	case len(in) > 0 || ctx.Err() != nil:
		return done, ctx.Err()
	}
	err = a.WithEngine(ctx, cfg, func(e Engine) (failed error) {
		done, failed = to.revoke(e, ctx, Me(cfg), subject)
		return failed
	})
	return done, err
}

func eachApproval(list []sandboxmcp.Approval) []sandboxmcp.Approval {
	return each(list, func(p sandboxmcp.Approval) (time.Time, string) { return p.RequestedAt, p.ID })
}

// each removes duplicates and sorts by time. key returns an item's time and id.
func each[T any](list []T, key func(T) (time.Time, string)) []T {
	slices.SortFunc(list, func(x, y T) int {
		xAt, xID := key(x)
		yAt, yID := key(y)
		return cmp.Or(xAt.Compare(yAt), strings.Compare(xID, yID))
	})
	return append([]T{}, slices.CompactFunc(list, func(x, y T) bool {
		_, xID := key(x)
		_, yID := key(y)
		return xID == yID
	})...)
}
