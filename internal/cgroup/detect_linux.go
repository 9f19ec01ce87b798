package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// scene holds the mounted hierarchies and this process's group in each.
type scene struct {
	cfg    Config
	mounts []mount
	paths  map[string]string // group of this process by controller; "" is version 2
}

type mount struct {
	point       string   // mount point, with Config.Root prepended
	root        string   // the part of the hierarchy that is mounted
	controllers []string // nil on version 2
	unified     bool
}

// Unified reports whether the host's groups are those of version 2 alone.
func Unified() bool {
	var fs unix.Statfs_t
	return unix.Statfs("/sys/fs/cgroup", &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

func survey(cfg Config) (scene, error) {
	s := scene{cfg: cfg}
	var err error
	if s.paths, err = groupsOf(cfg.Root + "/proc/self/cgroup"); err != nil {
		return s, err
	}
	info, err := os.ReadFile(cfg.Root + "/proc/self/mountinfo")
	if err != nil {
		return s, err
	}
	for line := range strings.Lines(string(info)) {
		if m, ok := parseMount(line); ok {
			m.point = filepath.Join(cfg.Root, m.point)
			s.mounts = append(s.mounts, m)
		}
	}
	return s, nil
}

// parseMount parses a line of mountinfo (proc(5)): six fields, optional fields up to a
// dash, then type, source and options of the file system.
func parseMount(line string) (mount, bool) {
	before, after, found := strings.Cut(line, " - ")
	if !found || !strings.HasPrefix(after, "cgroup") {
		return mount{}, false
	}
	head, tail := strings.Fields(before), strings.Fields(after)
	if len(head) < 6 || len(tail) < 3 {
		return mount{}, false
	}
	m := mount{point: plainText(head[4]), root: plainText(head[3])}
	switch tail[0] {
	case "cgroup2":
		m.unified = true
	case "cgroup":
		m.controllers = strings.Split(tail[2], ",")
	default:
		return mount{}, false
	}
	return m, true
}

// plainText returns a path of mountinfo without escapes.
func plainText(path string) string {
	if !strings.Contains(path, `\`) {
		return path
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// own returns the directory of this process's group in the hierarchy.
func (m mount) own(path string) (string, error) {
	rel, err := filepath.Rel(m.root, path)
	if strings.HasPrefix(path, "/..") || // above the root of our cgroup namespace
		err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", fmt.Errorf("own group %s is not below %s, which is mounted at %s", path, m.root, m.point)
	}
	return filepath.Join(m.point, rel), nil
}

// Open makes a directory for groups, below this process's own group or, on version 2, where
// the rules of version 2 allow it. It uses version 2 if that has the memory and task
// controllers, and else version 1. The error says for each version why it cannot be used.
// The caller closes the tree.
//
// A CPU quota is optional: if the tree cannot hold one, Weak says so.
func Open(cfg Config) (*Tree, error) {
	s, err := survey(cfg)
	if err != nil {
		return nil, fmt.Errorf("look for control groups: %w", err)
	}
	if len(s.mounts) == 0 {
		return nil, errors.New("look for control groups: no control group file system is mounted")
	}
	t, err2 := s.open2([]string{"memory", "pids"})
	if err2 == nil {
		return t, nil
	}
	t, err1 := s.open1()
	if err1 == nil {
		return t, nil
	}
	return nil, fmt.Errorf("control groups cannot hold limits here: version 2: %w; version 1: %w", err2, err1)
}

// open1 makes and tests a version 1 tree. It has one directory in each hierarchy that
// carries a needed controller.
func (s scene) open1() (*Tree, error) {
	t := s.tree(1)
	t.freezerBase = s.freezerBase()
	for _, want := range []string{"memory", "pids", "cpu", "cpuacct"} {
		err := s.join1(t, want)
		needed := want == "memory" || want == "pids"
		switch {
		case err == nil:
		case needed:
			return nil, errors.Join(fmt.Errorf("controller %s: %w", want, err), t.Close())
		case want == "cpu":
			t.weak = append(t.weak, fmt.Sprintf("cpu quota: %v", err))
		}
	}
	if m := t.of("memory"); m != nil {
		if t.countsSwap = m.has("memory.memsw.limit_in_bytes"); !t.countsSwap {
			t.weak = append(t.weak, weakSwap)
		}
		if t.countsNetwork = m.has(networkFile1); !t.countsNetwork {
			t.weak = append(t.weak, "memory limit: buffers of network sockets are not counted")
		}
		// Groups inherit it. It saves disk writes and is not a limit.
		_ = m.write("memory.swappiness", "0")
	}
	if err := t.try(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (s scene) join1(t *Tree, controller string) error {
	if t.of(controller) != nil {
		return nil
	}
	i := slices.IndexFunc(s.mounts, func(m mount) bool { return slices.Contains(m.controllers, controller) })
	if i < 0 {
		return errors.New("its hierarchy is not mounted")
	}
	path, ok := s.paths[controller]
	if !ok {
		return errors.New("this process is in no group of it")
	}
	base, err := s.mounts[i].own(path)
	if err != nil {
		return err
	}
	return t.addHierarchy(base, s.mounts[i].controllers)
}
