package process

import (
	"context"
	"errors"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// This file prepares the backend before the first sandbox is opened.

// Prepare finds the control groups and certificates.
func (b *Backend) Prepare(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ctx.Err() == nil && !b.closed {
		b.prepareLocked()
	}
}

// buildLocked starts the builder of the first jail. On version 2 of control groups it starts in a
// group that is not known yet, so openHall starts it there.
func (b *Backend) buildLocked() {
	if b.cfg.testOnlyNoNamespaces || cgroup.Unified() {
		return
	}
	if first, err := b.firstUIDLocked(); err == nil {
		b.early = jail.StartBuilder(strongest(), first, 0)
	}
}

// Warm makes the jail that the first sandbox with these trees needs.
func (b *Backend) Warm(ctx context.Context, trees []backend.Tree) {
	if ctx.Err() != nil {
		return
	}
	h, err := b.hallFor(trees)
	if err != nil {
		b.log.Debug("warm up", "error", err)
		return
	}
	b.leave(h)
}

// Expect builds a ready sandbox for the first caller. Unlike every other ready sandbox, it may be the
// first one of its jail.
func (b *Backend) Expect(ctx context.Context, spec backend.Spec, p backend.Process) <-chan struct{} {
	starts, started := context.WithCancel(ctx)
	announced := !spec.Terminal && b.ready.Announce(b.keyOf(spec), func() (*sandbox, bool) { // no ready sandbox has terminals
		defer started()
		s, err := b.first(ctx, spec, aheadOf(p), started)
		if err != nil {
			b.log.Debug("no sandbox is made ready", "error", err)
		}
		return s, err == nil
	})
	if !announced {
		started()
	}
	return starts.Done()
}

// first builds a ready sandbox. If no jail fits it, first builds the jail, too. Unless p is nil, first
// starts p in the sandbox and then calls started.
func (b *Backend) first(ctx context.Context, spec backend.Spec, p *backend.Process, started func()) (*sandbox, error) {
	h, err := b.hallFor(spec.Trees)
	if err != nil {
		return nil, err
	}
	defer b.leave(h)
	if h.Mode() == jail.ModePlain || h.Mode() == jail.ModeContainer {
		return nil, errors.ErrUnsupported
	}
	s, err := b.build(h, spec, forLater)
	if err != nil {
		return nil, err
	}
	if p != nil && !s.startAhead(*p) { // beside the trial: nothing of a caller runs before that has passed
		err = errors.New("the process does not start")
	} else {
		started()
		if err = h.try(ctx, s); err != nil {
			b.drop(h)
		}
	}
	if err != nil {
		_ = s.end()
	}
	return s, err
}

// prepareLocked finds the cgroups and certificates outside of jails, once, and starts the first jail's builder.
func (b *Backend) prepareLocked() {
	if b.prepared {
		return
	}
	b.prepared = true
	if b.cfg.Containers != nil {
		b.certs, b.shown = b.containerCertificates()
		b.noTree = "the engine makes the control groups"
		return
	}
	b.buildLocked() // while the rest is found
	b.compileAhead()
	b.certs, b.shown = b.certificates()
	if sandboxmcp.TierL1.AtLeast(b.cfg.MinTier) {
		sweepPlain(b.cfg.TempDir)
	}
	if b.cfg.testOnlyNoCgroup {
		b.noTree = "left out"
		return
	}
	tree, err := cgroup.Open(cgroup.Config{Logger: b.log, Spare: !b.cfg.NoPool})
	if err != nil {
		b.noTree = err.Error()
		return
	}
	b.builds.Go(func() {
		if n, err := tree.Sweep(); n > 0 || err != nil {
			b.log.Info("control groups of dead servers removed", "count", n, "error", err)
		}
	})
	b.tree = tree
	if !b.cfg.NoPool {
		b.groups = b.newGroupPool()
		if g := tree.Spare(); g != nil && !b.groups.Put(struct{}{}, g) {
			_ = b.dropGroup(g)
		}
	}
}
