package process

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// contain makes the sandbox's container and adopts its init.
func (s *sandbox) contain(cfg jail.SlotConfig) error {
	uid := s.hall.ReserveUID()
	adopted := false
	defer func() {
		if !adopted {
			s.hall.ReleaseUID(uid)
		}
	}()
	c, err := s.b.cfg.Containers.Start(ContainerSpec{
		ID: s.spec.ID, Image: s.spec.Image, UID: uid, MemoryBytes: s.spec.MemoryBytes, CPUCores: s.spec.CPUCores, MaxTasks: s.spec.MaxTasks + 1,
		Tmpfs: jail.ContainerTmpfs(cfg.Size, uid), Trees: s.containerTrees(),
	})
	if err != nil {
		return err
	}
	s.container = c
	limits := cgroup.Limits{MemoryBytes: s.spec.MemoryBytes, CPUCores: s.spec.CPUCores, MaxTasks: s.spec.MaxTasks + 1}
	if s.group, err = cgroup.Adopt(cgroup.Config{Logger: s.b.log}, c.PID, limits); err != nil {
		return errors.Join(err, unix.Close(c.Control), unix.Close(c.PIDFD))
	}
	adopted = true
	s.slot, err = s.hall.Adopt(c.Control, c.PIDFD, uid, cfg)
	return err
}

// buildContainer is build for a sandbox that is a container.
func (b *Backend) buildContainer(s *sandbox) (*sandbox, error) {
	err := s.contain(s.slotConfig())
	if err == nil {
		if err = s.furnish(); err == nil {
			return s, nil
		}
		_ = s.end()
		return nil, err
	}
	return nil, errors.Join(err, s.remove())
}

// containerTrees returns the trees that the container shows from its start. Those of Attach come
// later.
func (s *sandbox) containerTrees() []backend.Tree {
	trees := slices.Clone(s.hall.trees)
	if shown := s.b.cfg.Shown; shown != "" && !s.spec.Apart {
		trees = append(trees, backend.Tree{Host: shown, Inside: WorkspaceDir})
	}
	return trees
}

// removeContainer removes the container of a sandbox, if it has one.
func (s *sandbox) removeContainer() error {
	if s.container == nil {
		return nil
	}
	return s.container.Remove()
}

// containerCertificates returns the tree that shows this machine's certificate authorities, because
// an image may have none.
func (b *Backend) containerCertificates() (inside string, shown []jail.Tree) {
	for _, path := range append([]string{b.cfg.CertFile}, systemCertificates...) {
		if target, err := certificateFile(path, inNone); err == nil {
			return shownCertificates, []jail.Tree{{Host: target, Inside: shownCertificates}}
		}
	}
	return "", nil
}

// openContainers opens the jail whose sandboxes are containers.
func (b *Backend) openContainers(trees []jail.Tree) (*hall, error) {
	if !isHostRoot() {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the %s backend needs a server that root has started: it enters the namespaces of containers", b.Name()).
			WithHint("start the server as root, or use default_backend: process, which needs no root")
	}
	if b.cfg.Writable {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the %s backend shows workspace_path read-only", b.Name()).WithHint("set workspace_mode: ro")
	}
	return b.tryMode(jail.ModeContainer, trees)
}
