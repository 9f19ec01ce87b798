package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// open2 makes and tests a version 2 tree. On version 2 a group other than the root cannot
// have both processes and limited groups below it. The tree is therefore in the root
// group; in this process's own group, if no other process is in it, after this process has
// moved into a leaf group; or in the parent group.
func (s scene) open2(need []string) (*Tree, error) {
	i := slices.IndexFunc(s.mounts, func(m mount) bool { return m.unified })
	if i < 0 {
		return nil, errors.New("not mounted")
	}
	path, ok := s.paths[""]
	if !ok {
		return nil, errors.New("this process is in no group of it")
	}
	own, err := s.mounts[i].own(path)
	if err != nil {
		return nil, err
	}
	t := s.tree(2)
	if err = s.settle(t, s.mounts[i].point, own, need); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	h := t.hierarchies[0]
	if len(need) == 0 {
		return t, nil
	}
	if err = enable(h.directory, need); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	controllers, err := h.read("cgroup.subtree_control")
	if err != nil {
		return nil, errors.Join(err, t.Close())
	}
	h.controllers = strings.Fields(controllers)
	if t.countsSwap = h.has("memory.swap.max"); !t.countsSwap {
		t.weak = append(t.weak, weakSwap)
	}
	if !slices.Contains(h.controllers, "cpu") {
		t.weak = append(t.weak, "cpu quota: the controller is not delegated to "+h.base)
	}
	if err := t.try(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (s scene) settle(t *Tree, top, own string, need []string) error {
	isRoot := false
	if _, err := os.Stat(filepath.Join(own, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		isRoot = true // only the root group has no cgroup.type
	}
	if isRoot {
		return s.place(t, own, need)
	}
	errOwn := s.placeInOwn(t, own, need)
	if errOwn == nil {
		return nil
	}
	if own == top {
		return errOwn
	}
	if err := s.place(t, filepath.Dir(own), need); err != nil {
		return fmt.Errorf("%w; %w", errOwn, err)
	}
	return nil
}

// place makes the tree's directory in base. To move a process, the kernel requires write
// permission for cgroup.procs of the common parent of both groups, which is base.
func (s scene) place(t *Tree, base string, need []string) error {
	if err := unix.Access(filepath.Join(base, "cgroup.procs"), unix.W_OK); err != nil {
		return fmt.Errorf("%s does not let this user move processes: %w", base, err)
	}
	f, err := openDirectory(base)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := enable(directory{file: f, path: base, plain: t.plain}, need); err != nil {
		return err
	}
	return t.addHierarchy(base, nil)
}

// placeInOwn moves this process into a leaf group and then places the tree in its own group.
func (s scene) placeInOwn(t *Tree, own string, need []string) error {
	f, err := openDirectory(own)
	if err != nil {
		return err
	}
	defer f.Close()
	d := directory{file: f, path: own, plain: t.plain, made: s.cfg.TestOnlyMade}
	procs, err := d.read("cgroup.procs")
	if err != nil {
		return err
	}
	self := strconv.Itoa(os.Getpid())
	if got := strings.Fields(procs); len(got) != 1 || got[0] != self {
		return fmt.Errorf("%s holds other processes too; start in a group of its own (systemd: Delegate=yes)", own)
	}
	if err = lacking(d, need); err != nil {
		return err
	}
	name, err := ownerName(s.cfg.Root)
	if err != nil {
		return err
	}
	leaf := name + "-server"
	if err := d.make(leaf); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	if err := d.write(leaf+"/cgroup.procs", self); err != nil {
		return errors.Join(err, d.remove(leaf))
	}
	t.leave = func() error { return moveBack(own, leaf, t.plain) }
	if err := s.place(t, own, need); err != nil {
		t.leave = nil
		return errors.Join(err, moveBack(own, leaf, t.plain))
	}
	return nil
}

// moveBack undoes placeInOwn. This process can return only after all controllers are
// disabled for child groups. That fails while another tree is there; then the process
// stays in the leaf.
func moveBack(own, leaf string, plain bool) error {
	f, err := openDirectory(own)
	if err != nil {
		return err
	}
	defer f.Close()
	d := directory{file: f, path: own, plain: plain}
	text, err := d.read("cgroup.subtree_control")
	if err != nil {
		return err
	}
	for c := range strings.FieldsSeq(text) {
		if err := d.write("cgroup.subtree_control", "-"+strings.TrimPrefix(c, "+")); err != nil {
			return err
		}
	}
	if err := d.write("cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	return d.remove(leaf)
}

// lacking fails if a controller is not delegated to the group.
func lacking(d directory, need []string) error {
	text, err := d.read("cgroup.controllers")
	if err != nil {
		return err
	}
	for _, c := range need {
		if !slices.Contains(strings.Fields(text), c) {
			return fmt.Errorf("controller %s is not delegated to %s", c, d.path)
		}
	}
	return nil
}

// enable enables the controllers for the child groups of a directory, and the CPU controller
// if that is possible.
func enable(d directory, need []string) error {
	if len(need) == 0 {
		return nil
	}
	if err := lacking(d, need); err != nil {
		return err
	}
	text, err := d.read("cgroup.subtree_control")
	if err != nil {
		return err
	}
	for _, c := range append(slices.Clone(need), "cpu") {
		if slices.Contains(strings.Fields(text), c) || c == "cpu" && lacking(d, []string{c}) != nil {
			continue
		}
		if err := d.write("cgroup.subtree_control", "+"+c); err != nil && c != "cpu" {
			return err
		}
	}
	return nil
}
