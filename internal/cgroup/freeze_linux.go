package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Only version 2 freezes in a way that SIGKILL ends, also when the server dies. The
// freezer of version 1 keeps what is killed until it is thawed.
//
// The processes of a group are moved into a frozen group, and back when they are thawed.
// On version 2 it is below the group, whose limits hold there, too. A tree of version 1
// makes it in the hierarchy of version 2 that is mounted beside it. A group that is never
// frozen costs nothing.

const (
	freezeFile  = "cgroup.freeze"
	procsFile   = "cgroup.procs"
	threadsFile = "cgroup.threads"
)

// freezerBase returns this process's group of version 2, for a tree of version 1; "" if
// there is none.
func (s scene) freezerBase() string {
	i := slices.IndexFunc(s.mounts, func(m mount) bool { return m.unified })
	path, ok := s.paths[""]
	if i < 0 || !ok {
		return ""
	}
	own, err := s.mounts[i].own(path)
	if err != nil {
		return ""
	}
	return own
}

// Freezes reports whether groups can be frozen.
func (t *Tree) Freezes() bool {
	if t.version == 2 {
		return t.hierarchies[0].has(freezeFile)
	}
	_, err := t.freezer()
	return err == nil
}

// freezer returns the directory of frozen groups of a tree of version 1. The first call
// makes it.
func (t *Tree) freezer() (*hierarchy, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.frozen != nil, t.noFreezer != nil:
		return t.frozen, t.noFreezer
	case t.freezerBase == "" || t.groups == nil:
		return nil, fmt.Errorf("freeze control groups: %w: no version 2 beside version 1", errors.ErrUnsupported)
	}
	in := &Tree{root: t.root, plain: t.plain, made: t.made}
	err := unix.Access(filepath.Join(t.freezerBase, procsFile), unix.W_OK)
	if err == nil {
		err = in.addHierarchy(t.freezerBase, nil)
	}
	if err == nil && !in.hierarchies[0].has(freezeFile) { // before Linux 5.2
		err = errors.Join(fmt.Errorf("freeze control groups: %w: no %s", errors.ErrUnsupported, freezeFile), t.removeHierarchy(in.hierarchies[0]))
	}
	if err != nil {
		t.noFreezer = err // it is tried once
		return nil, err
	}
	t.frozen = in.hierarchies[0]
	return t.frozen, nil
}

// frozenGroup returns the directory and the name of the frozen group of a group.
func (g *Group) frozenGroup() (h *hierarchy, name string, err error) {
	if g.tree.version == 2 {
		return g.tree.hierarchies[0], g.name + "/frozen", nil
	}
	h, err = g.tree.freezer()
	return h, g.name + ".frozen", err // no group of version 1 has such a name
}

// Freeze stops every process of the group but one until Thaw, and returns when all have
// stopped. They can still be killed, and other methods do not wait meanwhile: a program with
// many tasks and a small CPU limit takes seconds to stop. If Freeze fails, some may have stopped, and the
// caller calls Thaw. except is the process that goes on; it must not start others
// meanwhile.
func (g *Group) Freeze(ctx context.Context, except int) error {
	g.freezing.Lock()
	defer g.freezing.Unlock()
	if g.isRemoved() {
		return fmt.Errorf("freeze control group %s: %w", g.name, fs.ErrClosed)
	}
	h, name, err := g.frozenGroup()
	if err != nil {
		return err
	}
	if err = h.make(name); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	g.frozen = true
	if err = h.write(name+"/"+freezeFile, "1"); err != nil {
		return err
	}
	first, threads := g.tree.hierarchies[0], g.path(threadsFile)
	if g.tree.version == 1 {
		threads = g.path("tasks")
	}
	err = until(ctx, func() (bool, error) { // what a process starts before it is moved is found by the next look
		more, bad := outside(first.directory, threads, h.directory, name, except)
		if bad != nil || len(more) == 0 {
			return bad == nil, bad
		}
		all, allErr := first.words(g.path(procsFile))
		there, thereErr := h.words(name + "/" + procsFile)
		if bad = errors.Join(allErr, thereErr); bad != nil {
			return false, bad
		}
		left := slices.DeleteFunc(all, func(pid string) bool { return pid == strconv.Itoa(except) || slices.Contains(there, pid) })
		if bad = h.enter(name+"/"+procsFile, left); bad != nil {
			return false, bad
		}
		if more, bad = outside(first.directory, threads, h.directory, name, except); bad != nil { // those of processes that are not named
			return false, bad
		}
		return false, h.enter(name+"/"+procsFile, more)
	})
	if err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		text, err := h.read(name + "/cgroup.events")
		return numberIn(text, "frozen") == 1, err
	})
}

// outside returns the threads in the file of a group that are neither in its frozen group nor of one process.
//
// A first thread that has ended before its process was moved stays where it was. There the file of processes names
// the process until its last thread ends, and where the others are it does not name it. The file of threads has those
// that have not ended.
func outside(d directory, threads string, frozen directory, name string, except int) ([]string, error) {
	all, allErr := d.words(threads)
	there, thereErr := frozen.words(name + "/" + threadsFile)
	own, ownErr := os.ReadDir("/proc/" + strconv.Itoa(except) + "/task")
	if errors.Is(ownErr, fs.ErrNotExist) {
		ownErr = nil
	}
	known := make(map[string]bool, len(there)+len(own))
	for _, tid := range there {
		known[tid] = true
	}
	for _, e := range own {
		known[e.Name()] = true
	}
	return slices.DeleteFunc(all, func(tid string) bool { return known[tid] }), errors.Join(allErr, thereErr, ownErr)
}

// Thaw lets the processes of a frozen group go on. It does nothing if the group is not
// frozen.
func (g *Group) Thaw(ctx context.Context) error {
	g.freezing.Lock()
	defer g.freezing.Unlock()
	if !g.frozen || g.isRemoved() {
		return nil
	}
	h, name, err := g.frozenGroup()
	if err != nil {
		return err
	}
	home, file := g.tree.hierarchies[0].directory, g.path(procsFile)
	if g.tree.version == 1 {
		f, bad := openDirectory(g.tree.freezerBase)
		if bad != nil {
			return bad
		}
		defer f.Close()
		home, file = directory{file: f, path: g.tree.freezerBase, plain: g.tree.plain}, procsFile
	}
	err = until(ctx, func() (bool, error) {
		for _, list := range []string{procsFile, threadsFile} { // a process without its first thread may be in the second only
			left, bad := h.words(name + "/" + list)
			if bad == nil {
				bad = home.enter(file, left)
			}
			if bad != nil {
				return false, bad
			}
		}
		left, bad := h.words(name + "/" + threadsFile)
		return len(left) == 0, bad
	})
	if err != nil {
		return err
	}
	return g.meltLocked()
}

func (g *Group) isRemoved() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.removed
}

// meltLocked removes the frozen group of a group, in which no process is left. freezing is
// held.
func (g *Group) meltLocked() error {
	if !g.frozen {
		return nil
	}
	h, name, err := g.frozenGroup()
	if err != nil {
		return err
	}
	if err = h.remove(name); err == nil {
		g.frozen = false
	}
	return err
}

// enter writes process ids to a file of a group. Those that have ended are left out.
func (d directory) enter(file string, pids []string) error {
	for _, pid := range pids {
		if err := d.write(file, pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// words reads a whole file of words.
func (d directory) words(name string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(d.path, name))
	return strings.Fields(string(text)), err
}

// until calls done until it reports true, or fails, or ctx ends.
func until(ctx context.Context, done func() (bool, error)) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}
