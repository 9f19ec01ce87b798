package process

import (
	"context"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/pool"
)

// This file says what the backend keeps for later sandboxes, how much of it and for how
// long. Config.NoPool turns all of it off, and Config.PoolIdle replaces poolIdle. What a
// value costs while it is kept is beside it.

const (
	poolIdle = 5 * time.Minute // ready sandboxes and fork servers that no program asks for

	// Empty sandboxes, by poolKey. One costs a process, a dozen descriptors, the tasks of its
	// limit, and less than 1 MiB; with a process that was started ahead 8 MiB.
	readyWindow = time.Minute
	readyKeys   = 16
	readyBytes  = 64 << 20 // of the machine's memory, for each
	readyLeast  = 4        // which is always allowed
	readyMost   = 64       // which is always enough

	// Cgroups and network namespaces that dead sandboxes left: kernel memory alone. The latter
	// are kept by each jail.
	keepMost = 8
	keepFor  = time.Minute

	// Fork servers of a jail. One costs a process and the memory of its interpreter, and its
	// snapshots cost up to 256 MiB each.
	forkServersMost = 5
)

// newReadyPool keeps empty sandboxes. It follows demand: as many are kept as were in use at
// once, and one more, because the next is often asked for before the last has been given
// back. How many sessions there are says nothing about how many come next.
func newReadyPool(idle time.Duration) *pool.Pool[poolKey, *sandbox] {
	return pool.New(pool.Policy[poolKey, *sandbox]{
		Total: readyBound(), Idle: idle, Window: readyWindow, Keys: readyKeys,
		Want: func(key poolKey, peak int) int {
			if key.stays {
				return 1
			}
			return peak + 1
		},
		Dead: (*sandbox).gone,
		Drop: (*sandbox).end,
		Cost: func(s *sandbox, counts map[string]int) {
			counts["slots_ready"]++
			if s.ahead != nil || s.child != nil {
				counts["processes_ahead"]++
			}
		},
	})
}

// readyBound returns how many sandboxes may be ready on this machine.
func readyBound() int {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return readyLeast
	}
	total := uint64(si.Totalram) * uint64(si.Unit) //nolint:unconvert // differs by architecture
	return int(min(max(total/readyBytes, readyLeast), readyMost))
}

// newForkPool keeps the fork servers of one jail, by forkServerKey. Programs share them.
func newForkPool(idle time.Duration) *pool.Pool[string, *forkServer] {
	return pool.New(pool.Policy[string, *forkServer]{
		Total: forkServersMost, Idle: idle, Drop: (*forkServer).end,
		Cost: func(n *forkServer, counts map[string]int) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.zygote != nil {
				counts["zygotes"]++
				counts["imports"] += n.zygote.Snapshots()
			}
		},
	})
}

// newGroupPool keeps cgroups of dead sandboxes.
func (b *Backend) newGroupPool() *pool.Pool[struct{}, *cgroup.Group] {
	return pool.New(pool.Policy[struct{}, *cgroup.Group]{
		Total: keepMost, Idle: keepFor, Drop: b.dropGroup,
		Cost: func(_ *cgroup.Group, counts map[string]int) { counts["cgroups"]++ },
	})
}

// kept returns all pools. What the earlier ones drop may be put into the later ones.
func (b *Backend) kept() []pool.Keeper {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []pool.Keeper{b.ready}
	for _, h := range b.halls {
		all = append(all, h.forks, h.Kept())
	}
	return append(all, b.groups)
}

// Pool returns what is kept for later sandboxes.
func (b *Backend) Pool() map[string]int {
	counts := map[string]int{"cgroups": 0, "network_namespaces": 0, "slots_ready": 0, "imports": 0, "processes_ahead": 0, "zygotes": 0}
	for _, k := range b.kept() {
		k.Count(counts)
	}
	return counts
}

// Trim drops everything that is kept.
func (b *Backend) Trim(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, k := range b.kept() {
		_ = k.Empty()
	}
	return nil
}

// group sets the limits of a cgroup that is kept, or makes one.
func (b *Backend) group(tree *cgroup.Tree, l cgroup.Limits) (*cgroup.Group, error) {
	if g, ok := b.groups.Take(struct{}{}, nil); ok {
		err := g.Set(l)
		if err == nil {
			return g, nil
		}
		b.log.Debug("a control group cannot be used again", "error", err)
		_ = b.dropGroup(g)
	}
	b.mu.Lock()
	b.nextGroup++
	name := "g" + strconv.Itoa(b.nextGroup)
	b.mu.Unlock()
	return tree.New(name, l)
}

// keepGroup keeps the cgroup of a dead sandbox, if nothing of the sandbox is left in it.
func (b *Backend) keepGroup(g *cgroup.Group) bool {
	if b.groups == nil {
		return false
	}
	if err := g.Clear(); err != nil {
		b.log.Debug("a control group is not kept", "error", err)
		return false
	}
	return b.groups.Put(struct{}{}, g)
}

func (b *Backend) dropGroup(g *cgroup.Group) error {
	err := g.Remove()
	if err != nil {
		b.log.Warn("control group stays behind", "error", err)
	}
	return err
}
