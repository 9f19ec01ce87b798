package jail

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
)

// look is an observation of a process of a sandbox. Programs cannot change these facts of init:
// they have no capability, and init's namespaces, ids and limits are not theirs. The server changes
// mounts when it attaches trees (see stale), and limits that it lowers (see Lower).
type look struct {
	at     time.Time
	links  [len(processLinks)]string // of its namespaces; ModePlain: empty
	status map[string]string         // lines of status that statusWalls and sameAs read
	limits *rlimits                  // nil: they were lowered afterwards, see withLimits; ModePlain: nil
	cgroup string
	ids    string    // the uid map of its user namespace; ModeRoot only
	root   [2]uint64 // device and inode of its root directory; zero if nothing is forked into the jail's sandboxes
	place  []string  // walls that mounts and network prove
	walls  []string  // all of them, place included
}

// processLinks are the links in /proc/PID/ns. Those of namespaceWalls come first, in their order.
var processLinks = [...]string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "pid_for_children"}

// LookHold is the usual time for which an observation is used.
const LookHold = 10 * time.Second

// lookAtInit returns a look at init that is at most hold old.
func (s *Slot) lookAtInit(hold time.Duration) (*look, error) {
	s.mu.Lock()
	l, changes := s.seen, s.changes
	s.mu.Unlock()
	if l != nil && time.Since(l.at) < hold {
		if ended(s.pidfd) {
			return nil, errors.New("observe sandbox: the process has ended")
		}
		return l, nil
	}
	l, err := s.look(s.PID(), s.pidfd, s.results, s.probes, nil)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == changes {
		s.seen = l
	}
	return l, nil
}

// withLimits returns a look at init with its limits, which are read if they were lowered after it.
func (s *Slot) withLimits(l *look) (*look, error) {
	if l.limits != nil || s.jail.cfg.Mode == ModePlain {
		return l, nil
	}
	s.mu.Lock()
	changes := s.changes
	s.mu.Unlock()
	limits, err := limitsOf(s.PID())
	if err != nil {
		return nil, err
	}
	if ended(s.pidfd) {
		return nil, errors.New("observe sandbox: the process has ended")
	}
	now := *l
	now.limits = &limits
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == changes {
		s.seen = &now
	}
	return &now, nil
}

// stale drops the look at init, because the server has changed the sandbox.
func (s *Slot) stale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = nil
	s.changes++
}

// look observes a process of the sandbox. results are those of the probes that the process made.
// If init is not nil, the process is a fork. Then look fails unless the fork is in init's namespaces
// and cgroups, and has init's root directory, ids, capabilities and limits. The fork's mounts, network
// and map of ids belong to namespaces. They are then init's, and are not read again.
func (s *Slot) look(pid, pidfd int, results []int32, pr probes, init *look) (*look, error) {
	l := &look{at: time.Now()}
	o, err := observe(pid)
	if err != nil {
		return nil, err
	}
	defer o.close()
	cfg := &s.jail.cfg
	plain := cfg.Mode == ModePlain // it has no namespaces, and an ordinary user may not read the links
	if !plain {
		if err = l.readPlaces(o, pid, cfg); err != nil {
			return nil, err
		}
	}
	text, err := o.record("status")
	if err != nil {
		return nil, err
	}
	l.status = fields(text, sameStatus...)
	if init != nil {
		if err = l.sameAs(init); err != nil {
			return nil, err
		}
		l.place, l.ids = init.place, init.ids
	} else if !plain {
		if err = l.readNamespaces(o, cfg); err != nil {
			return nil, err
		}
	}
	l.walls = s.wallsOf(l, results, pr, plain)
	// The process still lives, so its process id was not reused while /proc was read.
	if ended(pidfd) {
		return nil, errors.New("observe sandbox: the process has ended")
	}
	return l, nil
}

// readPlaces reads the facts that a process of ModePlain does not have.
func (l *look) readPlaces(o *observer, pid int, cfg *Config) (err error) {
	forks := len(cfg.Entering) > 0 // else nothing is compared with init
	for i, name := range processLinks {
		if i == len(namespaceWalls) && !forks {
			break
		}
		if l.links[i], err = readlinkat(o.proc, "ns/"+name); err != nil {
			return fmt.Errorf("observe namespaces: %w", err)
		}
	}
	limits, err := limitsOf(pid)
	if err != nil {
		return err
	}
	l.limits = &limits
	if l.cgroup, err = o.record("cgroup"); err != nil {
		return err
	}
	if forks {
		var root unix.Stat_t
		if err = unix.Fstatat(o.proc, "root", &root, 0); err != nil {
			return fmt.Errorf("observe root directory: %w", err)
		}
		l.root = [2]uint64{root.Dev, root.Ino}
	}
	return nil
}

// readNamespaces reads the facts that belong to the namespaces of the process.
func (l *look) readNamespaces(o *observer, cfg *Config) (err error) {
	if cfg.Mode == ModeRoot {
		if l.ids, err = o.read("uid_map"); err != nil {
			return err
		}
	}
	l.place, err = o.placeWalls(cfg)
	return err
}

// wallsOf returns the walls that a look proves. The wall of the network is WallNoNetwork, see
// networkWall.
func (s *Slot) wallsOf(l *look, results []int32, pr probes, plain bool) []string {
	walls := []string{}
	for i, n := range namespaceWalls {
		if !plain && !s.jail.foreign[l.links[i]] {
			walls = append(walls, n.wall)
		}
	}
	walls = append(walls, statusWalls(l.status, s.jail.root, plain)...)
	probed := probeWalls(results, pr, s.jail.abi)
	if !slices.Contains(probed, WallNoVsock) { // the process has a filter, but not that of this package
		walls = slices.DeleteFunc(walls, func(w string) bool { return w == WallSeccomp })
	}
	walls = append(walls, probed...)
	if plain {
		return walls
	}
	for _, w := range l.place {
		if w != sandboxmcp.WallNoNetwork || slices.Contains(walls, WallNetNS) {
			walls = append(walls, w)
		}
	}
	if l.limits.tasksLimited(s.taskLimit()) {
		walls = append(walls, WallTasks)
	}
	return walls
}

// taskLimit returns the RLIMIT_NPROC that the sandbox's processes should have.
func (s *Slot) taskLimit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.lowered.MaxTasks; n > 0 {
		return n + 1
	}
	return s.size.MaxTasks + 1
}

// sameStatus are the lines of status that are kept. They are alike in init and in a fork.
var sameStatus = []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"}

// sameAs fails unless a fork has the namespaces, cgroups, root directory, ids, capabilities and
// limits of init. The map of ids belongs to the user namespace.
func (l *look) sameAs(init *look) error {
	for i, name := range processLinks {
		if l.links[i] == "" || l.links[i] != init.links[i] {
			return fmt.Errorf("the fork's %s namespace is not the sandbox's", name)
		}
	}
	if l.root != init.root || l.root == [2]uint64{} {
		return errors.New("the fork's root directory is not the sandbox's")
	}
	if l.cgroup == "" || l.cgroup != init.cgroup {
		return errors.New("the fork is not in the sandbox's cgroup")
	}
	for _, name := range sameStatus {
		if l.status[name] != init.status[name] {
			return fmt.Errorf("the fork's %s is %s, want %s", name, l.status[name], init.status[name])
		}
	}
	if l.limits == nil || init.limits == nil || l.limits.butFiles() != init.limits.butFiles() {
		return errors.New("the fork's limits are not those of init")
	}
	return nil
}

// inBlock reports whether the sandbox's user is a host id of the jail's block.
func (l *look) inBlock(first int) bool {
	f := strings.Fields(l.ids)
	if len(f) != 3 || f[2] != "1" {
		return false
	}
	host, err := strconv.Atoi(f[1])
	return err == nil && host > first && host < first+idsPerBlock
}

// named returns walls with the wall of the network as it is now.
func (s *Slot) named(walls []string) []string {
	walls = slices.Clone(walls)
	if i := slices.Index(walls, sandboxmcp.WallNoNetwork); i >= 0 {
		walls[i] = s.networkWall()
	}
	return walls
}
