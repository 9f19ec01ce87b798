package cgroup

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// peakFile1 returns the file of the memory peak, with swap if the kernel counts it.
func (t *Tree) peakFile1() string {
	if t.countsSwap {
		return "memory.memsw.max_usage_in_bytes"
	}
	return "memory.max_usage_in_bytes"
}

// The memory limit of version 1 does not include buffers of TCP and UDP sockets, not even
// on loopback. They have a separate limit.
const (
	networkFile1  = "memory.kmem.tcp.limit_in_bytes"
	networkBytes1 = 32 << 20
)

// setMemory1 sets the limits of memory and of memory with swap to the same value. The
// kernel requires the second to be at least the first at all times, so the order of the
// writes depends on whether the limit rises or falls.
func (t *Tree) setMemory1(group string, old, limit int64) error {
	h := t.of("memory")
	if h == nil {
		return errNoController
	}
	files := []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	switch {
	case !t.countsSwap:
		files = files[:1]
	case limit == 0 || old != 0 && limit > old:
		files[0], files[1] = files[1], files[0]
	}
	if old == 0 && limit != 0 && t.countsNetwork {
		if err := h.set(group+"/"+networkFile1, strconv.Itoa(networkBytes1)); err != nil {
			return err
		}
	}
	for _, f := range files {
		name := group + "/" + f
		if limit == 0 { // no limit reads back as a number that depends on the page size
			if err := h.write(name, "-1"); err != nil {
				return err
			}
			continue
		}
		if err := h.set(name, strconv.FormatInt(limit, 10)); err != nil {
			return err
		}
	}
	return nil
}

func (g *Group) setQuota1(cores float64) error {
	h := g.tree.of("cpu")
	if cores == 0 {
		g.quota = "-1"
		return g.files.set(h, g.path("cpu.cfs_quota_us"), g.quota)
	}
	if period := g.path("cpu.cfs_period_us"); !g.period {
		if got := h.number(period, ""); got != quotaPeriod { // the period of a new group
			if err := h.set(period, strconv.Itoa(quotaPeriod)); err != nil {
				return err
			}
		}
		g.period = true
	}
	want := quotaOf(cores)
	err := g.files.set(h, g.path("cpu.cfs_quota_us"), strconv.FormatInt(want, 10))
	if errors.Is(err, unix.EINVAL) {
		// The kernel refuses a quota above that of the parent group. The parent's quota
		// bounds all groups together, so use it for this group.
		want, err = g.quotaAbove(want, err)
	}
	if err != nil {
		return err
	}
	g.quota = strconv.FormatInt(want, 10)
	return nil
}

func (g *Group) quotaAbove(want int64, refused error) (int64, error) {
	h := g.tree.of("cpu")
	above := directory{file: h.file, path: h.path}
	quota, period := above.number("../cpu.cfs_quota_us", ""), above.number("../cpu.cfs_period_us", "")
	if quota <= 0 || period <= 0 {
		return 0, refused
	}
	most := quota * quotaPeriod / period
	if most >= want || most < quotaLeast {
		return 0, refused
	}
	if err := g.files.set(h, g.path("cpu.cfs_quota_us"), strconv.FormatInt(most, 10)); err != nil {
		return 0, fmt.Errorf("%w; with the %d that the group above has: %w", refused, most, err)
	}
	return most, nil
}

// leastTasks is the number of tasks of a sandbox that runs one program: init and the program. A peak up to it
// tells nothing of a later use, because each has at least as many.
const leastTasks = 2

// untouched1 reports whether a group of the task controller has no process, and its peak is of no
// consequence for a later use.
func (g *Group) untouched1(h *hierarchy) bool {
	peak, err := g.files.read(h, g.path("pids.peak"))
	if err != nil || numberIn(peak, "") > leastTasks {
		return false
	}
	now, err := g.files.read(h, g.path("pids.current"))
	return err == nil && now == "0"
}

// clear1 removes and makes the group of the task controller if its peak says more than that a program ran,
// because the peak cannot be reset. The removal fails if a process is left.
func (g *Group) clear1() error {
	if g.removed {
		return errors.New("the group was removed")
	}
	h := g.tree.of("pids")
	if h == nil || h == g.tree.of("memory") || h == g.tree.of("cpu") || h == g.tree.of("cpuacct") {
		return errors.New("the task controller has no hierarchy of its own")
	}
	if n := g.inUse1(); n > leftover {
		return fmt.Errorf("%d bytes of memory are in use", n)
	}
	// Make Set write the quota even if it is unchanged. The write resets what the last use
	// has consumed of the current period.
	g.limits.CPUCores = -1
	if g.untouched1(h) {
		return nil
	}
	g.files.leave(h)
	if err := h.remove(g.name); err != nil {
		return err
	}
	g.limits.MaxTasks = 0
	return h.make(g.name)
}

// inUse1 returns the bytes that are charged to the group.
func (g *Group) inUse1() int64 {
	name := "memory.usage_in_bytes"
	if g.tree.countsSwap {
		name = "memory.memsw.usage_in_bytes"
	}
	h := g.tree.of("memory")
	if h == nil {
		return 0
	}
	return g.files.number(h, g.path(name), "")
}

func (t *Tree) read1(group string, from *files) figures {
	var f figures
	if h := t.of("memory"); h != nil {
		f.peakMemory = from.number(h, group+"/"+t.peakFile1(), "")
		f.oomKills = t.oomKills(group, from)
	}
	f.cpu = t.cpu(group, from)
	if h := t.of("pids"); h != nil {
		f.peakTasks = int(from.number(h, group+"/pids.peak", ""))
	}
	return f
}

// holdsMemory reports whether all files of the memory limit have the limit.
func (g *Group) holdsMemory(limit int64) bool {
	t := g.tree
	h, want := t.of("memory"), strconv.FormatInt(limit, 10)
	if t.version == 2 {
		return g.says(h, "memory.max", want) && (!t.countsSwap || g.says(h, "memory.swap.max", "0"))
	}
	return g.says(h, "memory.limit_in_bytes", want) &&
		(!t.countsSwap || g.says(h, "memory.memsw.limit_in_bytes", want))
}
