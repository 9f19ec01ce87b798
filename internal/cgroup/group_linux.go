package cgroup

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync"
	"time"
)

// Group is a set of processes with limits. Its methods may be called concurrently.
type Group struct {
	tree    *Tree
	name    string
	adopted bool // another manager has made it, see Adopt

	mu      sync.Mutex
	limits  Limits  // guarded by mu; set and read back
	quota   string  // guarded by mu; expected content of the quota file
	period  bool    // guarded by mu; version 1: the period is quotaPeriod
	lifted  float64 // guarded by mu; the limit in cores that LiftQuota removed; 0: none
	yields  bool    // guarded by mu; Yield was called
	before  figures // guarded by mu; at the last Set
	files   files   // guarded by mu
	removed bool    // guarded by mu

	freezing sync.Mutex // locked before mu. Freeze and Thaw wait with it held; other methods that wait for it need processes that have ended
	frozen   bool       // guarded by freezing; Freeze was called, and Thaw has not ended it
}

// figures are counters of the kernel. Most of them cannot be reset.
type figures struct {
	cpu         time.Duration
	oomKills    int
	peakMemory  int64
	peakTasks   int
	memoryReset bool  // the kernel has reset peakMemory to the memory in use
	inUse       int64 // bytes in use at that reset
}

func (g *Group) build(l Limits, o *owner) error {
	for _, h := range g.tree.hierarchies {
		if err := h.make(g.name); err != nil {
			return err
		}
		if o != nil {
			if err := o.give(h.directory, g.name); err != nil {
				return err
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.setLocked(l)
}

// Set changes the limits of a group that is reused, and starts Usage at zero. It fails if
// the memory limit is below the memory in use. After an error some limits are new and some
// old, and the caller must remove the group.
func (g *Group) Set(l Limits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.setLocked(l); err != nil {
		return fmt.Errorf("set limits of control group %s: %w", g.name, err)
	}
	g.restartLocked()
	return nil
}

// Change replaces the limits that are not 0, while processes are in the group. The counters of usage
// continue, and LiftQuota and Yield stay in effect. A quota that is lifted gets the new limit when it is
// restored. If the group uses more memory than the limit, Change fails.
func (g *Group) Change(l Limits) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	if l.MemoryBytes > 0 {
		err = g.setMemoryLocked(l.MemoryBytes)
	}
	if err == nil {
		err = g.changeCPULocked(l.CPUCores)
	}
	if err == nil && l.MaxTasks > 0 {
		err = g.setTasksLocked(l.MaxTasks)
	}
	if err != nil {
		return fmt.Errorf("change the limits of control group %s: %w", g.name, err)
	}
	return nil
}

func (g *Group) changeCPULocked(cores float64) error {
	switch {
	case g.tree.of("cpu") == nil || g.tree.noQuota || cores <= 0 || cores == g.limits.CPUCores:
		return nil
	case g.lifted > 0:
		g.lifted = cores
		return nil
	}
	if err := g.setCPULocked(cores); err != nil {
		return err
	}
	g.limits.CPUCores = cores
	return nil
}

func (g *Group) setMemoryLocked(bytes int64) error {
	if page := int64(os.Getpagesize()); bytes > 0 { // less than a page must not become 0, which means no limit
		bytes = max(bytes/page, 1) * page
	}
	bytes = max(bytes, 0)
	if bytes == g.limits.MemoryBytes {
		return nil
	}
	set := g.tree.setMemory1
	if g.tree.version == 2 {
		set = g.tree.setMemory2
	}
	if err := set(g.name, g.limits.MemoryBytes, bytes); err != nil {
		return err
	}
	g.limits.MemoryBytes = bytes
	return nil
}

func (g *Group) setLocked(l Limits) error {
	if err := g.yieldLocked(false); err != nil {
		return err
	}
	if err := g.setMemoryLocked(l.MemoryBytes); err != nil {
		return err
	}
	l.MemoryBytes = g.limits.MemoryBytes
	l.MaxTasks, l.CPUCores = max(l.MaxTasks, 0), max(l.CPUCores, 0)
	if err := g.setTasksLocked(l.MaxTasks); err != nil {
		return err
	}
	quota := g.tree.of("cpu") != nil && !g.tree.noQuota
	if !quota {
		l.CPUCores = 0
	}
	if quota && l.CPUCores != g.limits.CPUCores {
		if err := g.setCPULocked(l.CPUCores); err != nil {
			return err
		}
	}
	g.limits, g.lifted = l, 0
	return nil
}

// LiftQuota removes the CPU limit until RestoreQuota or Set is called. A killed process
// needs CPU time of its group to end, and a small quota delays that. Walls does not list
// the limit meanwhile.
func (g *Group) LiftQuota() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	cores := g.limits.CPUCores
	if g.removed || cores <= 0 {
		return nil
	}
	if err := g.setCPULocked(0); err != nil {
		return fmt.Errorf("lift the processor limit of control group %s: %w", g.name, err)
	}
	g.limits.CPUCores, g.lifted = 0, cores
	return nil
}

// Yield gives the group CPU time only if nothing else wants it, until RestoreQuota or Set is
// called. It needs Linux 5.15.
func (g *Group) Yield() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.yieldLocked(true)
}

func (g *Group) yieldLocked(yields bool) error {
	h := g.tree.of("cpu")
	if g.removed || h == nil || g.yields == yields {
		return nil
	}
	value := "0"
	if yields {
		value = "1"
	}
	if err := h.set(g.path("cpu.idle"), value); err != nil {
		return err
	}
	g.yields = yields
	return nil
}

// RestoreQuota sets the CPU limit again that LiftQuota removed, and undoes Yield.
func (g *Group) RestoreQuota() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.yieldLocked(false); err != nil {
		return err
	}
	if g.removed || g.lifted == 0 {
		return nil
	}
	if err := g.setCPULocked(g.lifted); err != nil {
		return fmt.Errorf("restore the processor limit of control group %s: %w", g.name, err)
	}
	g.limits.CPUCores, g.lifted = g.lifted, 0
	return nil
}

func (g *Group) setCPULocked(cores float64) error {
	if g.tree.version == 2 {
		return g.setQuota2(cores)
	}
	return g.setQuota1(cores)
}

// Name returns the last part of the group's path.
func (g *Group) Name() string { return g.name }

func (g *Group) path(file string) string { return g.name + "/" + file }

var errNoController = errors.New("the tree has no such controller")

// setTasksLocked sets the task limit, on both versions.
func (g *Group) setTasksLocked(n int) error {
	if n == g.limits.MaxTasks {
		return nil
	}
	h := g.tree.of("pids")
	if h == nil {
		return errNoController
	}
	err := h.set(g.path("pids.max"), orMax(int64(n)))
	if err == nil {
		g.limits.MaxTasks = n
	}
	return err
}

func orMax(n int64) string {
	if n == 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// Microseconds: the period of CPU quotas, and the smallest quota that the kernel accepts
// (kernel/sched/core.c).
const (
	quotaPeriod = 100_000
	quotaLeast  = 1_000
)

func quotaOf(cores float64) int64 {
	return max(int64(math.Round(cores*quotaPeriod)), quotaLeast)
}

// Walls names the limits that are in force: those that were set and that this call has read
// back from the kernel.
func (g *Group) Walls() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.removed {
		return nil
	}
	var walls []string
	add := func(name string, holds bool) {
		if holds {
			walls = append(walls, fmt.Sprintf("%s (cgroup v%d)", name, g.tree.version))
		}
	}
	t := g.tree
	if g.limits.MemoryBytes > 0 {
		add(wallMemory, g.holdsMemory(g.limits.MemoryBytes))
	}
	if g.limits.MaxTasks > 0 {
		add(wallTasks, g.says(t.of("pids"), "pids.max", orMax(int64(g.limits.MaxTasks))))
	}
	if g.limits.CPUCores > 0 {
		file := "cpu.cfs_quota_us"
		if t.version == 2 {
			file = "cpu.max"
		}
		add(wallCPU, g.says(t.of("cpu"), file, g.quota))
	}
	return walls
}

// Weak describes the limits that the group's kernel cannot enforce.
func (g *Group) Weak() []string { return g.tree.Weak() }

// Has reports whether the group is one of a controller, such as "memory".
func (g *Group) Has(controller string) bool { return g.tree.of(controller) != nil }

func (g *Group) says(h *hierarchy, file, want string) bool {
	got, err := g.files.read(h, g.path(file))
	return err == nil && got == want
}

// Entry opens the files by which processes enter the group. The caller closes them, before it calls Clear or Remove.
func (g *Group) Entry() (Entry, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var e Entry
	file := "tasks"
	if g.tree.version == 2 {
		file = "cgroup.procs"
	}
	var err error
	if e.Tasks, e.kept, err = g.files.entry(g.tree.hierarchies, g.path(file)); err == nil && g.tree.version == 2 {
		e.Dir, err = openDirectoryAt(g.tree.hierarchies[0].file, g.name)
	}
	if err != nil {
		return Entry{}, errors.Join(fmt.Errorf("open control group %s: %w", g.name, err), e.Close())
	}
	return e, nil
}

// Usage returns what the group has used. After Remove it is zero.
func (g *Group) Usage() Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.removed {
		return Usage{}
	}
	now, b := g.readLocked(), g.before
	u := Usage{CPU: max(now.cpu-b.cpu, 0), OOMKills: max(now.oomKills-b.oomKills, 0)}
	// An unchanged peak may be of an earlier use; report only a new one.
	if b.memoryReset || now.peakMemory > b.peakMemory {
		u.PeakMemory = max(now.peakMemory-b.inUse, 0)
	}
	if now.peakTasks > b.peakTasks {
		u.PeakTasks = now.peakTasks
	}
	return u
}

// OOMKills returns how many processes of the group the memory limit has ended. After
// Remove it is zero.
func (g *Group) OOMKills() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.removed {
		return 0
	}
	return max(g.tree.oomKills(g.name, &g.files)-g.before.oomKills, 0)
}

// CPU returns how much CPU time the group has used. ok is false if that is not known.
func (g *Group) CPU() (used time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.removed {
		return 0, false
	}
	if h := g.tree.of("cpuacct"); h != nil && g.tree.version == 1 {
		used = h.nanoseconds(g.path("cpuacct.usage"))
	} else {
		used = g.tree.cpu(g.name, &g.files)
	}
	return used - g.before.cpu, used > 0 && used >= g.before.cpu
}

// restartLocked records the current figures, which Usage subtracts.
func (g *Group) restartLocked() {
	reset := false
	if g.tree.version == 1 {
		h := g.tree.of("memory")
		reset = h != nil && g.files.write(h, g.path(g.tree.peakFile1()), "0") == nil
	}
	g.before = g.readLocked()
	g.before.memoryReset = reset
	if reset {
		g.before.inUse = g.before.peakMemory
	}
}

// leftover is how many bytes may still be charged to a group that is reused: the charges
// that the kernel caches for each CPU, and small kernel objects.
const leftover = 2 << 20

// Clear prepares a group whose processes have ended for reuse by Set. It fails if a process
// is left, if memory is still charged to the group (for example the page cache of files
// that the group was the first to read), or on version 2, where figures cannot be reset.
// The caller must then remove the group. Clear does not evict memory.
func (g *Group) Clear() error {
	g.freezing.Lock()
	defer g.freezing.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tree.version != 1 {
		return fmt.Errorf("clear control group %s: %w on version 2", g.name, errors.ErrUnsupported)
	}
	if err := errors.Join(g.meltLocked(), g.clear1()); err != nil {
		return fmt.Errorf("clear control group %s: %w", g.name, err)
	}
	g.files.reused = true
	return nil
}

func (g *Group) readLocked() figures {
	g.files.reads++
	if g.tree.version == 1 {
		return g.tree.read1(g.name, &g.files)
	}
	return g.tree.read2(g.name, &g.files)
}

// Kill kills every process in the group. It needs version 2; on version 1 it fails with
// errors.ErrUnsupported, and the caller has to end the pid namespace instead.
func (g *Group) Kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tree.version == 1 {
		return fmt.Errorf("kill control group %s: %w on version 1", g.name, errors.ErrUnsupported)
	}
	if g.removed {
		return nil
	}
	if err := g.tree.hierarchies[0].write(g.path("cgroup.kill"), "1"); err != nil {
		return fmt.Errorf("kill control group: %w", err)
	}
	return nil
}

// Remove removes the group. Its processes must have ended; Remove waits up to a second for
// one that is still exiting. It may be called more than once.
func (g *Group) Remove() error {
	g.freezing.Lock()
	defer g.freezing.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.removed {
		return nil
	}
	g.files.close()
	if g.adopted {
		g.removed = true
		return g.release()
	}
	errs := []error{g.meltLocked()}
	for _, h := range g.tree.hierarchies {
		errs = append(errs, h.remove(g.name))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove control group %s: %w", g.name, err)
	}
	g.removed = true
	g.tree.forget(g.name)
	return nil
}

func (t *Tree) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.groups, name)
}
