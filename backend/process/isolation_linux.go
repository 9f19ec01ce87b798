package process

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/watch"
)

// Isolation reads the sandbox's walls from the kernel.
func (s *sandbox) Isolation(ctx context.Context) (sandboxmcp.Isolation, error) {
	if err := ctx.Err(); err != nil {
		return sandboxmcp.Isolation{}, err
	}
	s.quota.RLock()
	defer s.quota.RUnlock()
	iso := sandboxmcp.Isolation{Backend: s.b.Name(), Kernel: s.b.kernel, PolicySHA256: s.hall.policy(), Weak: []string{}}
	hold := jail.LookHold
	if s.spec.Stays { // the caller keeps the observation
		hold = 0
	}
	seen, err := s.slot.Observe(hold)
	if err != nil {
		return iso, err
	}
	walls, mode := seen.Walls, s.hall.Mode()
	if mode == jail.ModeRoot && seen.InBlock {
		walls = append(walls, wallUIDs)
		if !jail.SeesLeases() {
			iso.Weak = append(iso.Weak, weakUIDs)
		}
	}
	held := []string{}
	if s.group != nil {
		if held, err = s.held(seen.Cgroup); err != nil {
			return iso, err
		}
		walls = append(walls, held...)
		iso.Weak = append(iso.Weak, s.group.Weak()...)
		iso.Weak = append(iso.Weak, lost(s.spec, held)...)
	}
	iso.Walls = walls
	iso.Tier = tier(mode, walls, held)
	iso.Weak = append(iso.Weak, weakObjects)
	if s.group == nil {
		iso.Weak = append(iso.Weak, weakMemory, weakKernelMemory, weakCPU(s.spec.CPUCores))
		if mode == jail.ModePlain || !watch.ListsSockets() {
			iso.Weak = append(iso.Weak, weakUnix)
		}
	}
	if s.container != nil {
		iso.Weak = append(iso.Weak, s.container.Weak...)
	}
	if s.sharesUser() {
		iso.Weak = append(iso.Weak, weakEpoll)
	}
	if slices.Contains(walls, jail.WallRootBut) {
		iso.Weak = append(iso.Weak, weakShared)
	}
	if mode == jail.ModePlain {
		iso.Weak = append(iso.Weak, weakPlain, weakUser)
		if s.group == nil {
			iso.Weak = append(iso.Weak, weakTasks)
		}
		if s.hall.LandlockABI() < 6 && s.sharesUser() {
			iso.Weak = append(iso.Weak, weakSignals)
		}
	}
	return iso, nil
}

// held returns the limits that the kernel confirms. It returns none unless init is in the sandbox's
// group in every hierarchy that the group has. seen is the observed /proc/PID/cgroup of init; "": it was not read.
func (s *sandbox) held(seen string) ([]string, error) {
	if seen == "" {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(s.slot.PID()) + "/cgroup")
		if err != nil {
			return nil, fmt.Errorf("observe control group: %w", err)
		}
		seen = string(b)
	}
	held := s.group.Walls()
	for _, controller := range []string{"memory", "pids", "cpu"} {
		if !s.group.Has(controller) {
			continue // Walls lists no limit of it
		}
		inside := false
		for line := range strings.Lines(seen) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			inside = inside || len(f) == 3 && (f[1] == "" || slices.Contains(strings.Split(f[1], ","), controller)) && strings.HasSuffix(f[2], "/"+s.group.Name())
		}
		if !inside {
			return []string{}, nil
		}
	}
	return held, nil
}

// lost names the limits that the control group of a sandbox was given and does not hold.
func lost(spec backend.Spec, held []string) (weak []string) {
	begins := func(name string) bool {
		return slices.ContainsFunc(held, func(wall string) bool { return strings.HasPrefix(wall, name) })
	}
	if spec.MemoryBytes > 0 && !begins("memory limit") {
		weak = append(weak, weakMemoryLost)
	}
	if spec.MaxTasks > 0 && !begins("task limit") {
		weak = append(weak, weakTasksLost)
	}
	return weak
}

// tier returns the tier of a set of walls.
func tier(mode jail.Mode, walls, held []string) sandboxmcp.Tier {
	switch {
	case mode == jail.ModePlain:
		return sandboxmcp.TierL1
	case mode == jail.ModeContainer && len(held) < 3:
		return sandboxmcp.TierL1
	case mode == jail.ModeRoot && len(held) >= 3 && contains(walls, wallUIDs):
		return sandboxmcp.TierL3
	default:
		return sandboxmcp.TierL2
	}
}

func contains(list []string, v string) bool {
	return slices.Contains(list, v)
}
