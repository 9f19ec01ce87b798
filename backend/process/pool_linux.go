package process

import (
	"context"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/pool"
)

// This file says what the backend keeps for later sandboxes, how much of it and for how long.
// Config.NoPool turns all of it off, and Config.PoolIdle replaces poolIdle. The comments say what
// each value costs while it is kept.

const (
	poolIdle = 5 * time.Minute // drop ready sandboxes and fork servers without demand after this time

	// Empty sandboxes, by poolKey. One costs a process, a dozen descriptors, the tasks of its
	// limit, and less than 1 MiB. With a process started in advance it costs 8 MiB, and with the
	// streams of its program up to ten descriptors more.
	readyWindow = time.Minute
	readyKeys   = 16
	readyBytes  = 64 << 20 // one ready sandbox for each 64 MiB of the machine's memory
	readyLeast  = 4        // but at least this many
	readyMost   = 64       // and at most this many

	// Cgroups and network namespaces of closed sandboxes, which cost only kernel memory. Each jail
	// keeps its own network namespaces.
	keepMost = 8
	keepFor  = time.Minute

	// Fork servers of a jail. One costs a process and the memory of its interpreter. Each of its
	// snapshots costs up to 256 MiB.
	forkServersMost = 5
)

// newReadyPool returns the pool of empty sandboxes. It follows demand: it keeps as many as were in
// use at once, plus one, because the next request often comes before the last sandbox is returned.
// For sessions it keeps one, because their number does not predict new ones.
func newReadyPool(idle time.Duration, eager bool) *pool.Pool[poolKey, *sandbox] {
	return pool.New(pool.Policy[poolKey, *sandbox]{
		Total: readyBound(), Idle: idle, Window: readyWindow, Keys: readyKeys, Eager: eager,
		Want: func(key poolKey, peak int) int {
			if key.stays {
				return 1
			}
			return peak + 1
		},
		Dead: (*sandbox).spoiled,
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

// newForkPool returns the pool of one jail's fork servers, by forkServerKey. Programs share them.
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

// newGroupPool returns the pool of cgroups of closed sandboxes.
func (b *Backend) newGroupPool() *pool.Pool[struct{}, *cgroup.Group] {
	return pool.New(pool.Policy[struct{}, *cgroup.Group]{
		Total: keepMost, Idle: keepFor, Drop: b.dropGroup,
		Cost: func(_ *cgroup.Group, counts map[string]int) { counts["cgroups"]++ },
	})
}

// kept returns all pools. A value dropped by one may be put into a later one of the list.
func (b *Backend) kept() []pool.Keeper {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []pool.Keeper{b.ready}
	for _, h := range b.halls {
		all = append(all, h.forks, h.Kept())
	}
	return append(all, b.groups)
}

// Pool returns the number of values kept for later sandboxes, by kind.
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

// group takes a cgroup from the pool and sets its limits, or makes a new one.
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

// keepGroup keeps the cgroup of a closed sandbox, if it can be cleared.
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
