package cgroup

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Tree makes groups. Its methods may be called concurrently.
type Tree struct {
	version       int
	hierarchies   []*hierarchy // version 2 has one
	weak          []string
	countsSwap    bool
	countsNetwork bool // version 1: buffers of sockets can be limited
	noQuota       bool // the kernel refused a CPU quota
	root          string
	plain         bool
	made          func(string)
	log           *slog.Logger
	leave         func() error // undoes placeInOwn; may be nil
	freezerBase   string       // version 1: see freezer; "": groups cannot be frozen
	keepsTrial    bool

	mu        sync.Mutex
	owner     *owner            // guarded by mu; user whose processes may clone into groups; nil: the server's only
	groups    map[string]*Group // guarded by mu; nil once closed
	frozen    *hierarchy        // guarded by mu; version 1: of frozen groups; nil: none was needed yet
	noFreezer error             // guarded by mu; why there is none
	spare     *Group            // guarded by mu; see Spare
}

type owner struct{ uid, gid int }

// hierarchy is this tree's directory in one hierarchy.
type hierarchy struct {
	directory
	controllers []string
	base        string // parent directory
	name        string // name in the parent directory
}

func (s scene) tree(version int) *Tree {
	t := &Tree{
		version: version, root: s.cfg.Root, plain: s.cfg.Root != "", made: s.cfg.TestOnlyMade,
		log: s.cfg.Logger, groups: map[string]*Group{}, keepsTrial: s.cfg.Spare && version == 1,
	}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	return t
}

// addHierarchy makes the tree's directory in base, with the first free number in its name.
func (t *Tree) addHierarchy(base string, controllers []string) error {
	parent, err := openDirectory(base)
	if err != nil {
		return err
	}
	defer parent.Close()
	in := directory{file: parent, path: base, plain: t.plain, made: t.made}
	owner, err := ownerName(t.root)
	if err != nil {
		return err
	}
	const most = 1000 // most trees of one process
	for n := range most {
		name := fmt.Sprintf("%s-%d", owner, n)
		err := in.make(name)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return err
		}
		h := &hierarchy{controllers: controllers, base: base, name: name}
		h.directory = directory{path: filepath.Join(base, name), plain: t.plain, made: t.made}
		if h.file, err = openDirectory(h.path); err == nil {
			err = lock(h.file)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("hold %s: %w", h.path, err), in.remove(name))
		}
		t.hierarchies = append(t.hierarchies, h)
		return nil
	}
	return fmt.Errorf("%s has %d directories of this process", base, most)
}

// of returns the hierarchy of a controller, or nil.
func (t *Tree) of(controller string) *hierarchy {
	for _, h := range t.hierarchies {
		if slices.Contains(h.controllers, controller) {
			return h
		}
	}
	return nil
}

// try makes a group with limits, reads them back and removes it. It fails if the memory or
// task limit does not read back.
func (t *Tree) try() error {
	g, err := t.New("trial", Limits{MemoryBytes: 32 << 20, MaxTasks: 16})
	if err != nil {
		return err
	}
	if t.of("cpu") != nil {
		if quotaErr := g.Set(Limits{MemoryBytes: 16 << 20, MaxTasks: 8, CPUCores: 0.5}); quotaErr != nil {
			t.noQuota = true
			t.weak = append(t.weak, fmt.Sprintf("cpu quota: %v", quotaErr))
		}
	}
	walls := strings.Join(g.Walls(), " ")
	for _, w := range []string{wallMemory, wallTasks} {
		if !strings.Contains(walls, w) {
			err = errors.Join(err, fmt.Errorf("%s was set but does not read back", w))
		}
	}
	if err == nil && t.keepsTrial && !t.noQuota {
		t.spare = g
		return nil
	}
	return errors.Join(err, g.Remove())
}

// Spare returns the group of the trial that [Config.Spare] has kept, once. The caller sets its limits and
// removes it. If no group was kept, Spare returns nil.
func (t *Tree) Spare() *Group {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.spare
	t.spare = nil
	return g
}

// Version returns the version of cgroups, 1 or 2.
func (t *Tree) Version() int { return t.version }

// Ways returns the length of Entry.Tasks.
func (t *Tree) Ways() int { return len(t.hierarchies) }

const weakSwap = "memory limit: this kernel does not count swap"

// Weak describes the limits that this tree cannot enforce.
func (t *Tree) Weak() []string { return slices.Clone(t.weak) }

// New makes a group, sets its limits and reads each back. On error it leaves nothing
// behind. The name has at most 64 letters, digits, "_" and "-" and must be unique in the
// tree. If the tree cannot hold a CPU quota, l.CPUCores is ignored; Weak and Walls show
// that. The caller removes the group.
func (t *Tree) New(name string, l Limits) (*Group, error) {
	if !validName(name) {
		return nil, fmt.Errorf("make control group %q: the name is not one of letters, digits, _ and -", name)
	}
	g := &Group{tree: t, name: name}
	t.mu.Lock()
	_, taken := t.groups[name]
	closed, owner := t.groups == nil, t.owner
	if !taken && !closed {
		t.groups[name] = g
	}
	t.mu.Unlock()
	if taken || closed {
		return nil, fmt.Errorf("make control group %s: taken %t, tree closed %t", name, taken, closed)
	}
	if err := g.build(l, owner); err != nil {
		return nil, errors.Join(fmt.Errorf("make control group %s: %w", name, err), g.Remove())
	}
	return g, nil
}

func validName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
	return name != "" && len(name) <= 64 && strings.Trim(name, letters) == ""
}

// ChownForEntry lets processes of a user clone into groups that are made from now on. It
// changes the owner of the groups' directories and cgroup.procs files, but not of the
// limits. The cloning process must itself be in a group of this tree, so the caller makes
// a group for it first. On version 1 ChownForEntry does nothing, because nothing is needed.
func (t *Tree) ChownForEntry(uid, gid int) error {
	if t.version == 1 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	o := &owner{uid, gid}
	if err := o.give(t.hierarchies[0].directory, ""); err != nil {
		return err
	}
	t.owner = o
	return nil
}

func (o *owner) give(d directory, group string) error {
	for _, name := range []string{filepath.Join(".", group), filepath.Join(group, "cgroup.procs")} {
		if err := unix.Fchownat(int(d.file.Fd()), name, o.uid, o.gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return d.fail("give away", name, err)
		}
	}
	return nil
}

// Sweep removes the directories of dead servers that are beside this tree's directories. It
// returns how many trees it has removed (the maximum over the hierarchies). Directories
// with processes stay for a later sweep. Directories of living servers are not touched.
func (t *Tree) Sweep() (int, error) {
	most := 0
	var errs []error
	bases := []string{}
	for _, h := range t.hierarchies {
		bases = append(bases, h.base)
	}
	if t.freezerBase != "" {
		bases = append(bases, t.freezerBase)
	}
	for _, base := range bases {
		n, err := sweep(t.root, base, t.plain)
		most = max(most, n)
		errs = append(errs, err)
	}
	return most, errors.Join(errs...)
}

// Close removes every group and the tree. The caller must have ended all processes in it.
// If a group still has one, Close fails after a second for each hierarchy, and the group
// stays for the Sweep of a later server. Close may be called more than once.
func (t *Tree) Close() error {
	t.mu.Lock()
	left, frozen := t.groups, t.frozen
	t.groups = nil
	t.mu.Unlock()
	var errs []error
	for _, g := range left {
		errs = append(errs, g.Remove())
	}
	if left == nil {
		return nil
	}
	if frozen != nil {
		errs = append(errs, t.removeHierarchy(frozen))
	}
	for _, h := range t.hierarchies {
		errs = append(errs, t.removeHierarchy(h))
	}
	if t.leave != nil {
		if err := t.leave(); err != nil { // only the server's own group is left
			t.log.Warn("control group of the server stays behind", "error", err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close control groups: %w", err)
	}
	return nil
}

func (t *Tree) removeHierarchy(h *hierarchy) error {
	parent, err := openDirectory(h.base)
	if err != nil {
		return err
	}
	defer parent.Close()
	in := directory{file: parent, path: h.base, plain: t.plain}
	return errors.Join(in.remove(h.name), h.file.Close())
}

// cpu reads how much CPU time a group has used; 0: it is not known.
func (t *Tree) cpu(group string, from *files) time.Duration {
	if t.version == 2 {
		return time.Duration(from.number(t.hierarchies[0], group+"/cpu.stat", "usage_usec")) * time.Microsecond
	}
	if h := t.of("cpuacct"); h != nil {
		return time.Duration(from.number(h, group+"/cpuacct.usage", ""))
	}
	return 0
}

// oomKills reads how many processes of a group the memory limit has ended.
func (t *Tree) oomKills(group string, from *files) int {
	h, file := t.of("memory"), "/memory.oom_control"
	if t.version == 2 {
		h, file = t.hierarchies[0], "/memory.events"
	}
	if h == nil {
		return 0
	}
	return int(from.number(h, group+file, "oom_kill"))
}
