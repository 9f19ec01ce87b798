package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Adopt returns the group that another manager, such as a container engine, has made for a process.
// It sets the limits there, and fails unless memory and tasks read back. Usage starts at zero.
// Remove closes the group and leaves the directories to their manager. The group cannot be frozen
// or kept.
//
// Preconditions: the process lives, and this process may write to its groups.
func Adopt(cfg Config, pid int, l Limits) (*Group, error) {
	g, err := adopt(cfg, pid)
	if err != nil {
		return nil, fmt.Errorf("adopt the control group of process %d: %w", pid, err)
	}
	if err = g.Set(l); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	walls := strings.Join(g.Walls(), " ")
	for _, w := range []string{wallMemory, wallTasks} {
		if !strings.Contains(walls, w) {
			return nil, errors.Join(fmt.Errorf("adopt control group %s: %s was set but does not read back", g.name, w), g.Remove())
		}
	}
	return g, nil
}

func adopt(cfg Config, pid int) (*Group, error) {
	s, err := survey(cfg)
	if err != nil {
		return nil, err
	}
	own := s.paths
	if s.paths, err = groupsOf(cfg.Root + "/proc/" + strconv.Itoa(pid) + "/cgroup"); err != nil {
		return nil, err
	}
	version := 1
	for _, m := range s.mounts {
		if m.unified && s.paths["memory"] == "" && s.paths["pids"] == "" {
			version = 2
		}
	}
	t := s.tree(version)
	g := &Group{tree: t, adopted: true}
	for _, want := range []string{"memory", "pids", "cpu", "cpuacct"} {
		if t.of(want) != nil {
			continue
		}
		if err = g.join(s, own, want); err != nil && (want == "memory" || want == "pids") {
			return nil, errors.Join(fmt.Errorf("controller %s: %w", want, err), g.Remove())
		}
	}
	m, swap := t.of("memory"), "memory.swap.max"
	if version == 1 {
		swap = "memory.memsw.limit_in_bytes"
		t.countsNetwork = m.has(filepath.Join(g.name, networkFile1))
	}
	if t.countsSwap = m.has(filepath.Join(g.name, swap)); !t.countsSwap {
		t.weak = append(t.weak, weakSwap)
	}
	return g, nil
}

// join opens the directory above the process's group in the hierarchy of a controller. The groups
// of all hierarchies have one name, and none is a group of this process.
func (g *Group) join(s scene, own map[string]string, controller string) error {
	key := controller
	i := slices.IndexFunc(s.mounts, func(m mount) bool {
		return m.unified && g.tree.version == 2 || slices.Contains(m.controllers, controller)
	})
	if i < 0 {
		return errors.New("its hierarchy is not mounted")
	}
	m := s.mounts[i]
	all := m.controllers
	if m.unified {
		key, all = "", []string{"memory", "pids", "cpu"}
	}
	path, ok := s.paths[key]
	if !ok || path == "/" || path == own[key] {
		return errors.New("the process has no group of its own")
	}
	dir, err := m.own(path)
	if err != nil {
		return err
	}
	base, name := filepath.Split(dir)
	if g.name != "" && g.name != name {
		return fmt.Errorf("its group is %s here and %s elsewhere", name, g.name)
	}
	file, err := openDirectory(base)
	if err != nil {
		return err
	}
	g.name = name
	g.tree.hierarchies = append(g.tree.hierarchies, &hierarchy{directory: directory{file: file, path: base, plain: g.tree.plain}, controllers: all})
	return nil
}

// release closes an adopted group.
func (g *Group) release() error {
	errs := []error{}
	for _, h := range g.tree.hierarchies {
		errs = append(errs, h.file.Close())
	}
	return errors.Join(errs...)
}

// groupsOf reads the group of a process by controller; "" is version 2.
func groupsOf(file string) (map[string]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			paths[c] = parts[2]
		}
	}
	return paths, nil
}
