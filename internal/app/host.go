package app

import (
	"context"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// HostAccess lists the rules of the settings, and the grants and pending questions of all
// servers, without duplicates.
func (a *App) HostAccess(ctx context.Context, cfg *config.Config, who sandboxmcp.Caller) (sandboxmcp.HostAccess, error) {
	var sum sandboxmcp.HostAccess
	err := a.everywhere(ctx, cfg, func(c sandboxmcp.Service) error {
		l, failed := c.HostAccess(ctx, who)
		sum.Allowed, sum.Blocked = append(sum.Allowed, l.Allowed...), append(sum.Blocked, l.Blocked...)
		sum.Approved, sum.Pending = append(sum.Approved, l.Approved...), append(sum.Pending, l.Pending...)
		sum.Enabled, sum.AutoApprove = sum.Enabled || l.Enabled, sum.AutoApprove || l.AutoApprove
		return failed
	})
	sum.Allowed, sum.Blocked = once(sum.Allowed), once(sum.Blocked)
	sum.Approved = each(sum.Approved, func(g sandboxmcp.AccessGrant) (time.Time, string) { return g.GrantedAt, g.ID })
	sum.Pending = each(sum.Pending, func(p sandboxmcp.HostApproval) (time.Time, string) { return p.RequestedAt, p.ID })
	return sum, err
}

// once removes repeated texts and keeps the order.
func once(list []string) []string {
	out := []string{}
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
