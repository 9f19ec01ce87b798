package app

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
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
		case sandboxmcp.CodeRequestNotFound, sandboxmcp.CodeNotFound: // the item is unknown there, or the server does not support egress
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
func (a *App) Egress(ctx context.Context, cfg *config.Config, who sandboxmcp.Caller) (sandboxmcp.EgressList, error) {
	var sum sandboxmcp.EgressList
	err := a.everywhere(ctx, cfg, func(c sandboxmcp.Service) error {
		l, failed := c.Egress(ctx, who)
		sum.Pending, sum.Granted, sum.Operator = append(sum.Pending, l.Pending...), append(sum.Granted, l.Granted...), append(sum.Operator, l.Operator...)
		return failed
	})
	sum.Pending = eachApproval(sum.Pending)
	sum.Granted = each(sum.Granted, func(g sandboxmcp.EgressGrant) (time.Time, string) { return g.GrantedAt, g.ID })
	slices.Sort(sum.Operator)
	sum.Operator = append([]string{}, slices.Compact(sum.Operator)...)
	return sum, err
}

// Decide carries out the decision of the person at the terminal.
func (a *App) Decide(ctx context.Context, cfg *config.Config, who sandboxmcp.Caller, d sandboxmcp.EgressDecision) (answer sandboxmcp.EgressAnswer, err error) {
	opened := false
	err = a.everywhere(ctx, cfg, func(c sandboxmcp.Service) error {
		if opened && d.Scope == sandboxmcp.GrantOnce { // a grant for one run needs to be made in only one server
			return nil
		}
		got, failed := c.DecideEgress(ctx, who, d)
		if failed == nil {
			answer, opened = got, true
		}
		return failed
	})
	return answer, err
}

// Revoke closes a domain.
func (a *App) Revoke(ctx context.Context, cfg *config.Config, domain string) (done sandboxmcp.EgressRevoked, err error) {
	err = a.everywhere(ctx, cfg, func(c sandboxmcp.Service) error {
		r, failed := c.RevokeEgress(ctx, Me(cfg), domain)
		done.Domain, done.Revoked = r.Domain, done.Revoked+r.Revoked
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
