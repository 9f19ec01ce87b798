package host

import (
	"path/filepath"
	"slices"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
)

// changeable is what programs in sandboxes can change: a writable workspace, at each path that shows it. They decide what a path in it names, at
// any moment, so commands of the rules that the settings have by default keep away from it. The zero value is nothing.
type changeable struct {
	paths []string // paths of the workspace and of the mounts in it, without links; empty: there is no writable workspace
	look  *budget  // of the command
}

// changeable returns what programs in sandboxes can change now.
func (h *Host) changeable(look *budget) changeable {
	if h.cfg.Changeable == "" {
		return changeable{look: look}
	}
	mounts, err := plainfile.Table()
	look.short(err)
	return changeable{paths: mounts.Whole(h.cfg.Changeable), look: look}
}

// mountsNow returns the mounts. It fails if the server can open no more files at the moment: one that it does not know of may show a closed or changeable place once more.
func mountsNow() (plainfile.Mounts, error) {
	mounts, err := plainfile.Table()
	if usedUp(err) {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the server can open no more files at the moment, so it does not know where mounts show files once more").
			WithHint("call again later; an operator raises the server's limit of open files").WithCause(err)
	}
	return mounts, nil
}

// awayFrom returns what the words of a command of a rule may not lead into.
func (h *Host) awayFrom(look *budget, r *Rule) changeable {
	if r.usual == nil || r.usual.scope == nil {
		return changeable{look: look}
	}
	return h.changeable(look)
}

// has reports whether a path is in it, or leads there or through it.
func (c changeable) has(path string) bool { return len(c.paths) > 0 && c.look.leadsInto(c.paths, path) }

// in reports whether a directory contains it, or a part of it.
func (c changeable) in(dir string) bool {
	if len(c.paths) == 0 {
		return false
	}
	real, err := c.look.follow(dir)
	if err != nil {
		real = filepath.Clean(dir)
	}
	return slices.ContainsFunc(c.paths, func(path string) bool { return under(path, real) })
}

// refuseWay fails with host_path_denied if a path that a word names is in it, or leads there or through it.
func (c changeable) refuseWay(path string) error {
	return c.refuseInto(path, "host_file_read for a file")
}

// refuseDir is as refuseWay, for the directory of a command.
func (c changeable) refuseDir(dir string) error {
	return c.refuseInto(dir, "name another directory as cwd")
}

func (c changeable) refuseInto(path, instead string) error {
	if !c.has(path) {
		return nil
	}
	if err := c.look.over(); err != nil {
		return err
	}
	return pathDenied(path, inWorkspace).WithHint("use execute_code with language shell, which has workspace_path at /workspace, or " + instead)
}

// refuse fails with host_path_denied if one of the places that a command reads unasked is in it, leads there, or contains it. Sandboxes may
// lack the other places of such a command, so the hint does not name them. It also fails once the budget is used up.
func (c changeable) refuse(places ...string) error {
	if len(c.paths) == 0 {
		return nil
	}
	for _, place := range places {
		why := inWorkspace
		has := c.has(place)
		if !has && c.in(place) {
			has, why = true, "it contains workspace_path, and programs in sandboxes can change that"
		}
		if err := c.look.over(); err != nil {
			return err
		}
		if !has {
			continue
		}
		return pathDenied(place, why).WithHint("ask a person for a command that names the directory, such as git -C DIR status: request_host_access")
	}
	return nil
}

// inWorkspace is why a path is refused.
const inWorkspace = "it is in workspace_path, or leads there, and programs in sandboxes can change that"

// outside returns paths that have nothing to do with it.
func (c changeable) outside(paths []string) []string { return slices.DeleteFunc(paths, c.has) }

// rest returns the parts of a directory that have nothing to do with it.
func (c changeable) rest(dir string) []string {
	real, err := c.look.follow(dir)
	if err != nil {
		real = filepath.Clean(dir)
	}
	return besides(c.look, real, c.paths)
}
