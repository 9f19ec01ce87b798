package kube

import (
	"context"
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
)

// Checks builds a trial sandbox, and reports the cluster, its walls, and the rights of the server's account.
func (b *Backend) Checks(ctx context.Context) []sandboxmcp.Check {
	list := b.try(ctx)
	b.connecting.Lock()
	reached := b.cluster != nil
	b.connecting.Unlock()
	if reached {
		list = append(list, b.checkRights(ctx)...)
	}
	return list
}

// try builds a trial sandbox, and reports the cluster and its walls.
func (b *Backend) try(ctx context.Context) []sandboxmcp.Check {
	sb, err := b.Open(ctx, trial("doctor"))
	if err != nil {
		e := sandboxmcp.AsError(err)
		return []sandboxmcp.Check{{Name: Name, Needed: true, Detail: e.Message, Fix: e.Hint}}
	}
	defer func() { _ = sb.Close(context.WithoutCancel(ctx)) }()
	iso, err := sb.Isolation(ctx)
	if err != nil {
		return []sandboxmcp.Check{{Name: Name, Needed: true, Detail: err.Error(), Fix: "report it: a pod was started but could not be looked at"}}
	}
	closed := slices.Contains(iso.Walls, sandboxmcp.WallNoNetwork)
	list := []sandboxmcp.Check{
		{Name: Name, Needed: true, OK: true, Detail: "a pod ran in namespace " + b.cluster.namespace + ", reached by " + b.cfg.connects(b.cluster.inside)},
		{Name: "kube tier", OK: iso.Tier.AtLeast(sandboxmcp.TierL4), Detail: string(iso.Tier) + " on Linux " + iso.Kernel, Fix: "set kube_runtime_class to a runtime with a kernel of its own, such as gvisor, or set isolation_min: L1"},
		{Name: "kube network", Needed: true, OK: closed, Detail: "a pod could not reach addresses that the server reaches", Fix: b.remedy(sandboxmcp.WallNoNetwork)},
	}
	if !closed {
		list[2].Detail = "that a pod's network is closed was not shown"
	}
	if b.cfg.Pool != "" {
		_, pooled := b.provider.(*claims)
		list = append(list, sandboxmcp.Check{Name: "kube pool", OK: pooled, Detail: "agent-sandbox " + claimGroup.Version, Fix: "install agent-sandbox with its extensions"})
	}
	for _, w := range iso.Walls {
		list = append(list, sandboxmcp.Check{Name: "kube: " + w, OK: true, Detail: "stood around the trial pod"})
	}
	for _, w := range iso.Weak {
		list = append(list, sandboxmcp.Check{Name: "kube: weak", Detail: w, Fix: "see docs/kubernetes.md"})
	}
	return list
}
