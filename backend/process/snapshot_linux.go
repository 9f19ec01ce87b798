package process

import (
	"context"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// A Fork.Load, such as a text that imports packages, is executed by a fork of the zygote in a
// sandbox of its own. That fork has no rights over anything else. The memory of the process is
// saved as a snapshot. The forks of programs with the same Load map the snapshot, each in its own
// sandbox. No Load runs in a process that may enter sandboxes.

// load is the state of one Fork.Load of one fork server. The fork server's mu guards it.
type load struct {
	key       string
	text      string
	trees     []backend.Tree // attached to the sandboxes
	check     backend.LoadCheck
	uses      int
	last      time.Time     // when a program last asked for it
	making    chan struct{} // closed when the attempt has ended; nil: none is under way
	importing bool          // the attempt has checked the files and executes the Load
	failed    time.Time
}

// loadSpec returns the Spec of the sandbox in which a Load is executed.
func loadSpec() backend.Spec {
	return backend.Spec{
		ID: "load", MemoryBytes: 1 << 30, CPUCores: 1, MaxTasks: 32, CPUTime: time.Minute,
		WorkBytes: 512 << 20, WorkInodes: 256, TempBytes: 16 << 20,
	}
}

// loadKey returns the key of what a fork loads in a sandbox of a Spec, or "" for nothing. It
// includes the attached trees, because the same text may load other files from other trees.
func loadKey(f *backend.Fork, spec backend.Spec) string {
	if len(f.Load) == 0 {
		return ""
	}
	return string(f.Load) + "\x00" + treeKey(attachedTo(spec))
}

func attachedTo(spec backend.Spec) []backend.Tree {
	return slices.DeleteFunc(slices.Clone(spec.Trees), func(t backend.Tree) bool { return !attached(t) })
}

// wantsLocked records that a process has a Load. If there are others enough, it replaces one that no process
// had for the time of rest. n.mu is held.
func (n *forkServer) wantsLocked(f *backend.Fork, spec backend.Spec, rest time.Duration) {
	key := loadKey(f, spec)
	if key == "" {
		return
	}
	i := n.loads[key]
	if i == nil {
		if len(n.loads) >= jail.MaxSnapshots && !n.dropLocked(rest) {
			return
		}
		i = &load{key: key, text: string(f.Load), trees: attachedTo(spec)}
		n.loads[key] = i
	}
	i.check = f.Check
	i.uses++
	i.last = time.Now()
}

// dropLocked forgets the Load that was asked for least recently, if that was before the time of rest. It reports
// whether it did. n.mu is held.
func (n *forkServer) dropLocked(rest time.Duration) bool {
	var oldest *load
	for _, i := range n.loads {
		if i.making == nil && (oldest == nil || i.last.Before(oldest.last)) {
			oldest = i
		}
	}
	if oldest == nil || time.Since(oldest.last) < rest {
		return false
	}
	delete(n.loads, oldest.key)
	if n.zygote != nil {
		n.zygote.Keep(oldest.key, nil)
	}
	return true
}

// loadLocked starts to make the snapshots that programs need and that the zygote lacks. n.mu is
// held.
func (b *Backend) loadLocked(h *hall, n *forkServer) {
	if n.zygote == nil {
		return
	}
	for _, i := range n.loads {
		if i.uses < b.usesBefore() && !n.cfg.Stays || i.making != nil || n.zygote.Snapshot(i.key) != nil || time.Since(i.failed) < b.forkBounds.rest || !b.begin() {
			continue
		}
		i.making = make(chan struct{})
		z, todo := n.zygote, *i
		go func() {
			defer b.builds.Done()
			err := todo.checked(false)
			if err == nil {
				n.mu.Lock()
				i.importing = true
				n.mu.Unlock()
				err = b.makeSnapshot(h, z, todo)
			}
			if err != nil {
				b.log.Debug("no snapshot is made", "error", err)
			}
			b.mu.Lock()
			b.loaded, b.noLoad = true, err
			b.mu.Unlock()
			n.mu.Lock()
			defer n.mu.Unlock()
			close(i.making)
			i.making, i.importing = nil, false
			if err != nil {
				i.failed = time.Now()
			}
		}()
	}
}

// checked checks the files that the Load reads, before it is executed or after that.
func (l load) checked(loaded bool) error {
	if l.check == nil {
		return nil
	}
	return l.check(context.Background(), loaded) //nolint:forbidigo // the snapshot outlives the call that requested it
}

// makeSnapshot executes a Load, tests the snapshot by a fork in a sandbox of its own, and gives it
// to the zygote.
func (b *Backend) makeSnapshot(h *hall, z *jail.Zygote, l load) error {
	snapshot, err := b.saved(h, z, l)
	if err == nil {
		err = l.checked(true)
	}
	if err == nil {
		err = b.tryLoad(h, z, l, snapshot)
	}
	if err != nil {
		snapshot.Close()
		return err
	}
	z.Keep(l.key, snapshot)
	return nil
}

// saved executes a Load by a fork in a sandbox of its own and returns the snapshot.
func (b *Backend) saved(h *hall, z *jail.Zygote, l load) (*jail.Snapshot, error) {
	s, c, err := b.forkAlone(h, z, l.trees)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.end() }()
	if err = c.Save([]byte(l.text)); err != nil {
		return nil, err
	}
	if err = s.killAll(); err != nil {
		return nil, err
	}
	file, err := files{dir: s.slot.Dirs[jail.DirWork]}.Open("snapshot")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat(context.Background()) //nolint:forbidigo // the snapshot outlives the call that requested it
	if err != nil {
		return nil, err
	}
	return jail.NewSnapshot(file, info.Size)
}

// tryLoad loads a snapshot in a sandbox of its own.
func (b *Backend) tryLoad(h *hall, z *jail.Zygote, l load, snapshot *jail.Snapshot) error {
	s, c, err := b.forkAlone(h, z, l.trees)
	if err != nil {
		return err
	}
	defer func() { _ = s.end() }()
	return c.Load(snapshot, false)
}

// forkAlone makes a fork in a new sandbox that has no other use. The caller ends the sandbox.
func (b *Backend) forkAlone(h *hall, z *jail.Zygote, trees []backend.Tree) (*sandbox, *jail.Child, error) {
	spec := loadSpec()
	spec.Trees = trees
	s, err := b.build(h, spec, forServer)
	if err != nil {
		return nil, nil, err
	}
	s.watchOver()
	if s.child, err = s.forkFrom(z, false); err != nil {
		_ = s.end()
		return nil, nil, err
	}
	return s, s.child, nil
}

// awaitLoad waits for a snapshot that is being made, until ctx or t ends. It does not wait while the
// files are checked, because that takes longer than the process's own imports.
func (n *forkServer) awaitLoad(ctx context.Context, key string, t *time.Timer) {
	n.mu.Lock()
	var making chan struct{}
	if i := n.loads[key]; i != nil && i.importing {
		making = i.making
	}
	n.mu.Unlock()
	if making == nil {
		return
	}
	select {
	case <-making:
	case <-t.C:
	case <-ctx.Done():
	}
}

// load loads the snapshot that the zygote has under the key into a fork, if there is one. On error
// the sandbox must be cleared before anything runs in it.
func (s *sandbox) load(c *jail.Child, n *forkServer, z *jail.Zygote, key string, ahead bool) error {
	if key == "" || z == nil || !c.Same(z) || c.Loaded() {
		return nil
	}
	snapshot := z.Snapshot(key)
	if snapshot == nil {
		return nil
	}
	s.watchOver()
	err := c.Load(snapshot, ahead)
	if err == nil {
		s.childLoaded = key
		return nil
	}
	if !s.gone() { // the snapshot is at fault, because the sandbox has not ended
		n.forgetLoad(z, key)
		s.b.log.Warn("a snapshot is discarded", "error", err)
	}
	return err
}

// forgetLoad discards a snapshot that could not be loaded. It is not made again before
// forkBounds.rest has passed.
func (n *forkServer) forgetLoad(z *jail.Zygote, key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	z.Keep(key, nil)
	if i := n.loads[key]; i != nil && n.zygote == z {
		i.failed = time.Now()
	}
}

// NotLoaded returns why the last snapshot could not be made. It returns nil if it was made, or if
// none was requested.
func (b *Backend) NotLoaded() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.noLoad
}
