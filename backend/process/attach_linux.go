package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// attached reports whether a tree is attached to single sandboxes. All others are part
// of the jail that a sandbox is built in.
func attached(t backend.Tree) bool { return path.Dir(t.At()) == jail.AttachDir }

// split separates the trees of a Spec: those of the jail, and those attached to one sandbox.
func split(trees []backend.Tree) (whole, single []jail.Tree) {
	for _, t := range trees {
		j := jail.Tree{Host: t.Host, Inside: t.At()}
		if attached(t) {
			single = append(single, j)
		} else {
			whole = append(whole, j)
		}
	}
	return whole, single
}

// treeKey returns a different string for each list of trees.
func treeKey(trees []backend.Tree) string {
	var b strings.Builder
	for _, t := range trees {
		b.WriteString(t.Host + "\x00" + t.At() + "\x00")
	}
	return b.String()
}

// checkTrees returns an error if a tree does not exist. The caller must not answer that error by
// building weaker walls.
func checkTrees(trees []backend.Tree) error {
	for _, t := range trees {
		if st, err := os.Stat(t.Host); err != nil || !st.IsDir() && !st.Mode().IsRegular() || !filepath.IsAbs(t.Host) || !filepath.IsAbs(t.At()) {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is to be shown in the sandbox and is no directory or file with an absolute name", sandboxmcp.Quote(t.Host)).WithCause(err)
		}
	}
	return nil
}

// checkConfig returns an error if a directory of the configuration does not exist.
func (b *Backend) checkConfig() error {
	if root := b.cfg.Root; root != "" {
		if st, err := os.Stat(filepath.Join(root, "usr")); err != nil || !st.IsDir() || !filepath.IsAbs(root) || filepath.Clean(root) == "/" {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "rootfs %s is no root file system with an absolute name", sandboxmcp.Quote(root)).
				WithHint("make one with `sandboxmcp image build --rootfs DIR`").WithCause(err)
		}
	}
	if b.cfg.Shown == "" {
		return nil
	}
	return checkTrees(backend.Trees(b.cfg.Shown))
}

// Attach shows another tree in the sandbox.
func (s *sandbox) Attach(ctx context.Context, tree backend.Tree) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.hall.Mode() == jail.ModePlain {
		return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "nothing can be shown in a sandbox at isolation %s, which has no mounts of its own", sandboxmcp.TierL1).
			WithHint("run `sandboxmcp doctor` to see what keeps namespaces from being made")
	}
	if err := checkTrees([]backend.Tree{tree}); err != nil {
		return err
	}
	release, err := s.hold()
	if err != nil {
		return err
	}
	defer release()
	s.attaching.Lock()
	defer s.attaching.Unlock()
	if slices.ContainsFunc(s.trees, func(t jail.Tree) bool { return t.Inside == tree.At() }) {
		return &fs.PathError{Op: "attach", Path: tree.At(), Err: fs.ErrExist}
	}
	err = s.attachLocked(ctx.Done(), append(slices.Clone(s.trees), jail.Tree{Host: tree.Host, Inside: tree.At()}))
	if errors.Is(err, jail.ErrStopped) {
		err = ctx.Err()
	}
	return err
}

// furnish gives a new sandbox what the Spec says, before anything runs in it. Code of packages may run in a
// ready sandbox before it is handed out.
func (s *sandbox) furnish() error {
	tasks := s.spec.MaxTasks
	if jail.Crowd(tasks) {
		tasks = s.rlimitTasks // until it is handed out
	}
	if err := s.slot.LimitCrowd(tasks); err != nil {
		return err
	}
	return s.attachFirst()
}

// attachFirst attaches the trees of the Spec.
func (s *sandbox) attachFirst() error {
	_, single := split(s.spec.Trees)
	if len(single) == 0 || s.hall.Mode() == jail.ModePlain {
		return nil
	}
	s.attaching.Lock()
	defer s.attaching.Unlock()
	return s.attachLocked(nil, single)
}

// attachLocked replaces the sandbox's attached trees with a list. attaching is held.
func (s *sandbox) attachLocked(stop <-chan struct{}, trees []jail.Tree) error {
	err := s.slot.Attach(stop, trees)
	switch {
	case err == nil:
		s.trees = trees
		return nil
	case errors.Is(err, jail.ErrStopped):
		return err
	case errors.Is(err, jail.ErrAttach):
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the directories cannot be shown in the sandbox: %s", err).WithCause(err)
	case errors.Is(err, jail.ErrEnded), errors.Is(err, unix.ESRCH):
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the sandbox has ended, and nothing can be shown in it").WithHint("use a new one").WithCause(err)
	}
	return unavailable(err)
}
