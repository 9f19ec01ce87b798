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

// Launcher is a process that New can use to start the first jail faster.
type Launcher struct{ process *jail.Launcher }

// StartLauncher starts a launcher, if one is of use. The caller gives it to New, as a part of the Config, or closes
// it. It does so itself and not in the background, where it would have to wait for a processor.
func StartLauncher() *Launcher {
	if cgroup.Unified() { // see buildLocked
		return nil
	}
	return &Launcher{jail.StartLauncher()}
}

// Close ends the launcher, unless a backend has used it.
func (l *Launcher) Close() { l.jail().Close() }

func (l *Launcher) jail() *jail.Launcher {
	if l == nil {
		return nil
	}
	return l.process
}

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
		b.early = jail.StartBuilder(strongest(), first, 0, b.cfg.Launcher.jail())
	}
}

// Warm makes the jail that the first sandbox with these trees needs. If the Spec has limits, the script of that sandbox is
// made while the builder of the jail works.
func (b *Backend) Warm(ctx context.Context, spec backend.Spec) {
	if ctx.Err() != nil {
		return
	}
	if spec.MemoryBytes > 0 {
		b.mu.Lock()
		b.coming = &spec
		b.mu.Unlock()
	}
	h, err := b.hallFor(spec.Trees)
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
	if spec.Terminal { // no ready sandbox has terminals
		started()
		return starts.Done()
	}
	b.builds.Go(func() {
		<-starts.Done()
		b.mu.Lock()
		tree := b.tree
		b.mu.Unlock()
		b.sweepGroups(tree)
	})
	// The jail is built while the control groups are found, on which the key depends.
	if h, err := b.hallFor(spec.Trees); err == nil {
		b.leave(h)
	}
	announced := b.ready.Announce(b.keyOf(spec), func() (*sandbox, bool) {
		defer started()
		s, err := b.first(ctx, spec, aheadOf(p))
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
// starts p in the sandbox.
func (b *Backend) first(ctx context.Context, spec backend.Spec, p *backend.Process) (*sandbox, error) {
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
	// The process runs beside the trial: nothing of a caller runs before that has passed. While this thread sleeps, the
	// process has a processor at once. If it ran on, the process might wait for the end of this thread's slice.
	if p != nil && !s.startAhead(*p, true) {
		err = errors.New("the process does not start")
	} else if err = h.try(ctx, s); err != nil {
		b.drop(h)
	}
	if err != nil {
		_ = s.end()
	}
	return s, err
}

// prepareLocked finds certificates outside of jails, once, starts the first jail's builder, and begins to find the
// control groups.
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
	if b.cfg.testOnlyNoCgroup {
		b.noTree = "left out"
	} else {
		found := make(chan foundGroups, 1)
		b.finding = found
		b.builds.Go(func() { b.findGroups(found) })
	}
	b.certs, b.shown = b.certificates()
	if sandboxmcp.TierL1.AtLeast(b.cfg.MinTier) {
		sweepPlain(b.cfg.TempDir)
	}
}

// foundGroups are the control groups of this machine, or why there are none.
type foundGroups struct {
	tree *cgroup.Tree
	err  error
}

func (b *Backend) findGroups(found chan<- foundGroups) {
	tree, err := cgroup.Open(cgroup.Config{Logger: b.log, Spare: !b.cfg.NoPool})
	found <- foundGroups{tree, err}
	// With a Launcher a request waits for its sandbox, and the removal would delay it. Expect then removes them later.
	if err == nil && b.cfg.Launcher == nil {
		b.sweepGroups(tree)
	}
}

// sweepGroups removes control groups of dead servers, once. Without groups it does nothing.
func (b *Backend) sweepGroups(tree *cgroup.Tree) {
	if tree == nil {
		return
	}
	b.swept.Do(func() {
		if n, err := tree.Sweep(); n > 0 || err != nil {
			b.log.Info("control groups of dead servers removed", "count", n, "error", err)
		}
	})
}

// groupsLocked waits until the control groups are found.
func (b *Backend) groupsLocked() {
	b.prepareLocked()
	if b.finding == nil {
		return
	}
	found := <-b.finding
	b.finding = nil
	if found.err != nil {
		b.noTree = found.err.Error()
		return
	}
	b.tree = found.tree
	if !b.cfg.NoPool {
		b.groups = b.newGroupPool()
		if g := b.tree.Spare(); g != nil && !b.groups.Put(struct{}{}, g) {
			_ = b.dropGroup(g)
		}
	}
}
