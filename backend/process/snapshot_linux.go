package process

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Packages are imported in a sandbox of the server's own, by a fork of the zygote
// that has no rights over anything else. The memory of that process is saved, and
// the forks of programs that import the same packages load it, each in its own
// sandbox. No package code runs in a process that may enter sandboxes.

// imports is the state of one text that imports packages, for one nest. The hall's
// forkMu guards it.
type imports struct {
	text   string
	whole  func() error
	uses   int
	making chan struct{} // closed when the attempt has ended; nil: none is under way
	failed time.Time
}

// importsMost bounds the snapshots of one zygote.
const importsMost = 4

// importSpec is the sandbox in which packages are imported.
func importSpec() backend.Spec {
	return backend.Spec{
		ID: "import", MemoryBytes: 1 << 30, CPUCores: 1, MaxTasks: 32, CPUTime: time.Minute,
		WorkBytes: 512 << 20, WorkInodes: 256, TempBytes: 16 << 20,
	}
}

// wantsLocked notes that a program imports packages.
func (n *nest) wantsLocked(f *backend.Fork) {
	if len(f.Imports) == 0 {
		return
	}
	text := string(f.Imports)
	i := n.imports[text]
	if i == nil {
		if len(n.imports) >= importsMost {
			return
		}
		i = &imports{text: text}
		n.imports[text] = i
	}
	i.whole = f.Whole
	i.uses++
}

// importLocked starts to make the snapshots that programs want and the nest's zygote
// lacks.
func (b *Backend) importLocked(h *hall, n *nest) {
	if n.zygote == nil {
		return
	}
	for _, i := range n.imports {
		if i.uses < 2 && !n.cfg.Stays || i.making != nil || n.zygote.Snapshot(i.text) != nil || time.Since(i.failed) < b.forkBounds.rest || !b.begin() {
			continue
		}
		i.making = make(chan struct{})
		z, whole := n.zygote, i.whole
		go func() {
			defer b.builds.Done()
			err := b.makeSnapshot(h, z, i.text, whole)
			if err != nil {
				b.log.Debug("packages are not imported ahead", "error", err)
			}
			b.mu.Lock()
			b.imported, b.noImport = true, err
			b.mu.Unlock()
			h.forkMu.Lock()
			defer h.forkMu.Unlock()
			close(i.making)
			i.making = nil
			if err != nil {
				i.failed = time.Now()
			}
		}()
	}
}

// makeSnapshot imports packages and keeps the snapshot with the zygote, once a fork has
// loaded it in a sandbox of its own.
func (b *Backend) makeSnapshot(h *hall, z *jail.Zygote, text string, whole func() error) error {
	snapshot, err := b.saved(h, z, text)
	if err == nil && whole != nil {
		err = whole()
	}
	if err == nil {
		err = b.tryLoad(h, z, snapshot)
	}
	if err != nil {
		snapshot.Close()
		return err
	}
	z.Keep(text, snapshot)
	return nil
}

// saved has a fork import packages in a sandbox of its own.
func (b *Backend) saved(h *hall, z *jail.Zygote, text string) (*jail.Snapshot, error) {
	s, c, err := b.forkAlone(h, z)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	if err = c.Save([]byte(text)); err != nil {
		return nil, err
	}
	if err = s.Kill(context.Background()); err != nil { //nolint:forbidigo // it is nobody's call
		return nil, err
	}
	file, err := s.Files().Open("snapshot")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return jail.NewSnapshot(file, info.Size)
}

// tryLoad loads a snapshot in a sandbox of its own.
func (b *Backend) tryLoad(h *hall, z *jail.Zygote, snapshot *jail.Snapshot) error {
	s, c, err := b.forkAlone(h, z)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	return c.Load(snapshot, false)
}

// forkAlone makes a fork in a sandbox that is used for nothing else.
func (b *Backend) forkAlone(h *hall, z *jail.Zygote) (*sandbox, *jail.Child, error) {
	s, err := b.build(h, importSpec(), true)
	if err != nil {
		return nil, nil, err
	}
	if s.group == nil {
		s.watch = startWatch(s.slot, h.Mode(), s.spec)
	}
	if s.child, err = s.forkFrom(z, false); err != nil {
		_ = s.Close()
		return nil, nil, err
	}
	return s, s.child, nil
}

// awaitImports waits for a snapshot that is being made, until ctx or t ends.
func (h *hall) awaitImports(ctx context.Context, n *nest, text string, t *time.Timer) {
	h.forkMu.Lock()
	var making chan struct{}
	if i := n.imports[text]; i != nil {
		making = i.making
	}
	h.forkMu.Unlock()
	if making == nil {
		return
	}
	select {
	case <-making:
	case <-t.C:
	case <-ctx.Done():
	}
}

// load has a fork load the snapshot that its zygote has for a text, if there is one. On
// error the sandbox has to be cleared before anything runs in it.
func (s *sandbox) load(c *jail.Child, z *jail.Zygote, text string, ahead bool) error {
	if text == "" || z == nil || !c.Same(z) || c.Loaded() {
		return nil
	}
	snapshot := z.Snapshot(text)
	if snapshot == nil {
		return nil
	}
	err := c.Load(snapshot, ahead)
	if err == nil {
		s.childImports = text
		return nil
	}
	if !s.gone() { // the snapshot is at fault, and not the end of the sandbox
		s.hall.forgetImports(z, text)
		s.b.log.Warn("a snapshot of imported packages is discarded", "error", err)
	}
	return err
}

// forgetImports discards a snapshot that could not be loaded. It is not made again for a
// while.
func (h *hall) forgetImports(z *jail.Zygote, text string) {
	h.forkMu.Lock()
	defer h.forkMu.Unlock()
	z.Keep(text, nil)
	for _, n := range h.nests {
		if i := n.imports[text]; i != nil && n.zygote == z {
			i.failed = time.Now()
		}
	}
}

// NotImported tells why packages were not imported ahead when that was last tried;
// nil: they were, or nobody asked.
func (b *Backend) NotImported() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.noImport
}
