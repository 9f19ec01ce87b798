package process

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
)

// What a dead sandbox leaves is kept for the next one: so many of a kind, and
// for so long.
const (
	keepMost = 8
	keepFor  = time.Minute
)

// group limits a group that a dead sandbox left, or makes one.
func (b *Backend) group(tree *cgroup.Tree, l cgroup.Limits) (*cgroup.Group, error) {
	if g, ok := b.groups.Take(); ok {
		err := g.Set(l)
		if err == nil {
			return g, nil
		}
		b.log.Debug("a control group cannot be used again", "error", err)
		b.dropGroup(g)
	}
	b.mu.Lock()
	b.nextGroup++
	name := "g" + strconv.Itoa(b.nextGroup)
	b.mu.Unlock()
	return tree.New(name, l)
}

// keepGroup puts the group of a dead sandbox away for the next one, if nothing
// of the dead one is left in it.
func (b *Backend) keepGroup(g *cgroup.Group) bool {
	if b.groups == nil {
		return false
	}
	if err := g.Clear(); err != nil {
		b.log.Debug("a control group is not kept", "error", err)
		return false
	}
	return b.groups.Put(g)
}

func (b *Backend) dropGroup(g *cgroup.Group) {
	if err := g.Remove(); err != nil {
		b.log.Warn("control group stays behind", "error", err)
	}
}

// Pool tells what is kept for the next sandboxes: of dead ones, and empty ones.
func (b *Backend) Pool() map[string]int {
	b.mu.Lock()
	halls, groups := slices.Clone(b.halls), b.groups
	b.mu.Unlock()
	networks, zygotes, imports := 0, 0, 0
	for _, h := range halls {
		networks += h.Networks()
		z, i := h.zygotes()
		zygotes, imports = zygotes+z, imports+i
	}
	return map[string]int{"cgroups": groups.Len(), "network_namespaces": networks, "slots_ready": b.ready.count(), "imports": imports, "processes_ahead": b.ready.waiting(), "zygotes": zygotes}
}

// Trim gives back what is kept.
func (b *Backend) Trim(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.closeReady(b.ready.empty)
	b.mu.Lock()
	halls, groups := slices.Clone(b.halls), b.groups
	b.mu.Unlock()
	for _, h := range halls {
		h.endForks(false)
		h.Trim()
	}
	groups.Empty()
	return nil
}
