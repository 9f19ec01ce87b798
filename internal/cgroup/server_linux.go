package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ServerTasks returns the lowest task limit of this process's own group and of the visible
// groups above it. It returns 0 if no such limit is set. It changes nothing.
func ServerTasks(cfg Config) int {
	s, err := survey(cfg)
	if err != nil {
		return 0
	}
	lowest := 0
	for _, m := range s.mounts {
		path, ok := s.paths["pids"]
		if m.unified {
			path, ok = s.paths[""]
		} else if !slices.Contains(m.controllers, "pids") {
			continue
		}
		dir, err := m.own(path)
		if !ok || err != nil {
			continue
		}
		for ; strings.HasPrefix(dir, m.point); dir = filepath.Dir(dir) {
			b, err := os.ReadFile(filepath.Join(dir, "pids.max"))
			n, bad := strconv.Atoi(strings.TrimSpace(string(b)))
			if err == nil && bad == nil && (lowest == 0 || n < lowest) {
				lowest = n
			}
			if dir == m.point {
				break
			}
		}
	}
	return lowest
}
