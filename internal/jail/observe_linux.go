package jail

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
)

// Names of walls, as results list them.
const (
	WallUserNS   = "user namespace"
	WallMountNS  = "mount namespace"
	WallPIDNS    = "pid namespace"
	WallNetNS    = "network namespace"
	WallIPCNS    = "ipc namespace"
	WallUTSNS    = "uts namespace"
	WallCgroupNS = "cgroup namespace"
	WallRoot     = "read-only root"
	WallRootBut  = "read-only root except the shared directory" // instead of WallRoot, where Config.Shared is writable
	WallNoSetID  = "no set-user-ID files"
	WallLandlock = "landlock" // followed by its ABI
	WallSeccomp  = "seccomp"
	WallNoVsock  = "no vsock"
	WallNNP      = "no_new_privs"
	WallNoCaps   = "no capabilities"
	WallUnpriv   = "not the host's root"
	WallQuota    = "disk quota"
	WallTasks    = "task limit (rlimit)"
)

var namespaceWalls = []struct{ file, wall string }{
	{"user", WallUserNS},
	{"mnt", WallMountNS},
	{"pid", WallPIDNS},
	{"net", WallNetNS},
	{"ipc", WallIPCNS},
	{"uts", WallUTSNS},
	{"cgroup", WallCgroupNS},
}

// Required lists the walls that a sandbox of the mode must have to be used.
func (m Mode) Required(abi int) []string {
	walls := []string{WallSeccomp, WallNoVsock, WallNNP, WallNoCaps, WallUnpriv, landlockWall(abi)}
	if m == ModePlain {
		return walls
	}
	for _, n := range namespaceWalls {
		if n.wall != WallUserNS || m != ModeContainer { // an engine may share the host's user namespace with its containers
			walls = append(walls, n.wall)
		}
	}
	if m == ModeContainer {
		return append(walls, WallRoot, sandboxmcp.WallNoNetwork, WallQuota)
	}
	return append(walls, WallRoot, sandboxmcp.WallNoNetwork, WallQuota, WallTasks)
}

// Required lists the walls that a sandbox of the jail must have to be used.
func (j *Jail) Required() []string {
	walls := j.cfg.Mode.Required(j.abi)
	if j.cfg.Shared.Writable {
		walls = append(walls, WallNoSetID)
	}
	return walls
}

// Stands reports whether a required wall is among those that were observed. WallRootBut counts
// as WallRoot: it is observed only in a jail whose shared directory is writable.
func Stands(walls []string, required string) bool {
	return slices.Contains(walls, required) || required == WallRoot && slices.Contains(walls, WallRootBut)
}

func landlockWall(abi int) string { return WallLandlock + " (ABI " + strconv.Itoa(abi) + ")" }

// Observed is an observation of a sandbox's init.
type Observed struct {
	Walls   []string
	InBlock bool   // the sandbox's user is mapped to a host id of the jail's block
	Cgroup  string // the text of its /proc/PID/cgroup; ModePlain: empty
}

// Observe returns the walls of the sandbox, as the kernel reported them for its init at most hold
// ago. Programs that init starts inherit these walls. Observe does not rely on the
// script that built them.
//
// Forks of a zygote do not inherit from init. Fork observes each of them before it runs a
// program. If one of them lacks a wall, Observe leaves it out.
func (s *Slot) Observe(hold time.Duration) (Observed, error) {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead {
		return Observed{}, fmt.Errorf("observe sandbox: %w", ErrEnded)
	}
	l, err := s.lookAtInit(hold)
	if err != nil {
		return Observed{}, err
	}
	walls := s.named(l.walls)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, theirs := range s.forked {
		walls = slices.DeleteFunc(walls, func(w string) bool {
			if (w == sandboxmcp.WallTold || w == sandboxmcp.WallEgress) && (slices.Contains(theirs, sandboxmcp.WallNoNetwork) || slices.Contains(theirs, sandboxmcp.WallTold)) { // the fork was observed before these sockets were made, in the same namespace
				return false
			}
			return !slices.Contains(theirs, w)
		})
	}
	return Observed{walls, l.inBlock(s.jail.cfg.FirstUID), l.cgroup}, nil
}

// lookAround records the ids of the host's root, and the namespaces of the server.
func (j *Jail) lookAround() error {
	j.foreign = map[string]bool{}
	root, err := findHostRoot()
	if err != nil {
		return err
	}
	j.root = root
	return j.lookAt("self")
}

// lookAt records the namespaces of the server or of the builder, which has those of the jail when the template is complete. A
// namespace that a sandbox shares with either of them is not a wall.
func (j *Jail) lookAt(process string) error {
	if j.cfg.Mode == ModePlain {
		return nil
	}
	for _, n := range namespaceWalls {
		l, err := os.Readlink("/proc/" + process + "/ns/" + n.file)
		if err != nil {
			return fmt.Errorf("look at namespaces: %w", err)
		}
		j.foreign[l] = true
	}
	return nil
}

// maxProcFile is far more than the mount table of a sandbox needs.
const maxProcFile = 4 << 20

// observe opens a process's directory in /proc. The caller closes the observer.
func observe(pid int) (*observer, error) {
	proc, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("observe process: %w", err)
	}
	return observerAt(proc), nil
}

func observerAt(proc int) *observer {
	o, ok := observers.Get().(*observer)
	if !ok {
		o = &observer{buf: make([]byte, 16<<10)}
	}
	o.proc = proc
	return o
}

// observers are those that are not in use. Each has a buffer.
var observers sync.Pool

// observer reads files of one process's directory in /proc.
type observer struct {
	proc int
	buf  []byte
}

func (o *observer) close() {
	closeAll(o.proc)
	observers.Put(o)
}

// childrenOf returns the process ids of a process's children, separated by spaces.
func childrenOf(pid int) (string, error) {
	id := strconv.Itoa(pid)
	o := observerAt(unix.AT_FDCWD)
	defer observers.Put(o)
	return o.read("/proc/" + id + "/task/" + id + "/children")
}

// read returns the text of a file.
func (o *observer) read(name string) (string, error) { return o.take(name, false) }

// record returns the text of a file that the kernel makes in one piece. What leaves room in the buffer is then all of it.
func (o *observer) record(name string) (string, error) { return o.take(name, true) }

func (o *observer) take(name string, piece bool) (string, error) {
	fd, err := unix.Openat(o.proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("observe %s: %w", name, err)
	}
	defer closeAll(fd)
	n := 0
	for {
		if n == len(o.buf) {
			if n >= maxProcFile {
				return "", fmt.Errorf("observe %s: it is over %d bytes", name, maxProcFile)
			}
			o.buf = append(o.buf, make([]byte, n)...)
		}
		m, err := unix.Read(fd, o.buf[n:])
		if err != nil {
			return "", fmt.Errorf("observe %s: %w", name, err)
		}
		if n += m; m == 0 || piece && n < len(o.buf) {
			return string(o.buf[:n]), nil
		}
	}
}

func readlinkat(dir int, name string) (string, error) {
	var b [64]byte
	n, err := unix.Readlinkat(dir, name, b[:])
	return string(b[:max(n, 0)]), err
}

// fields parses "Key: value" lines. It returns those with the given names.
func fields(text string, names ...string) map[string]string {
	m := make(map[string]string, len(names))
	for line := range strings.SplitSeq(text, "\n") {
		if k, v, ok := strings.Cut(line, ":"); ok && slices.Contains(names, k) {
			m[k] = strings.TrimSpace(v)
		}
	}
	return m
}

func statusWalls(status map[string]string, root hostRoot, plain bool) []string {
	var walls []string
	if status["Seccomp"] == "2" {
		walls = append(walls, WallSeccomp)
	}
	if status["NoNewPrivs"] == "1" {
		walls = append(walls, WallNNP)
	}
	none := func(set string) bool {
		v := status[set]
		return v != "" && strings.Trim(v, "0") == ""
	}
	sets := []string{"CapInh", "CapPrm", "CapEff", "CapAmb"}
	if !plain || status["NoNewPrivs"] != "1" {
		sets = append(sets, "CapBnd")
	}
	if !slices.ContainsFunc(sets, func(set string) bool { return !none(set) }) {
		walls = append(walls, WallNoCaps)
	}
	uids, gids := strings.Fields(status["Uid"]), strings.Fields(status["Gid"]) // in the server's user namespace
	if len(uids) == 4 && len(gids) == 4 && !root.among(uids, gids) {
		walls = append(walls, WallUnpriv)
	}
	return walls
}

// probeWalls returns the walls that the process's own probes prove.
func probeWalls(results []int32, pr probes, abi int) []string {
	var walls []string
	result := func(i int) unix.Errno {
		if i < len(results) && results[i] < 0 {
			return unix.Errno(-results[i])
		}
		return 0
	}
	if result(pr.landlock) == unix.EACCES {
		walls = append(walls, landlockWall(abi))
	}
	if result(pr.setID) == unix.EPERM {
		walls = append(walls, WallNoSetID)
	}
	if result(pr.vsock) == unix.EAFNOSUPPORT && result(pr.setns) == unix.EPERM && result(pr.vmsplice) == unix.ENOSYS {
		walls = append(walls, WallNoVsock)
	}
	return walls
}

// placeWalls returns the walls that mounts and network prove. WallNoNetwork holds only in a network
// namespace of the process's own.
func (o *observer) placeWalls(cfg *Config) ([]string, error) {
	var walls []string
	mounts, err := o.read("mountinfo")
	if err != nil {
		return nil, err
	}
	root, quota := mountWalls(mounts, *cfg)
	if root != "" {
		walls = append(walls, root)
	}
	if quota {
		walls = append(walls, WallQuota)
	}
	net, err := o.read("net/dev")
	if err != nil {
		return nil, err
	}
	if bounds.OnlyLoopback(net) {
		walls = append(walls, sandboxmcp.WallNoNetwork)
	}
	return walls, nil
}

// mountWalls parses mountinfo. root is WallRoot if everything except the sandbox's four own
// mounts is read-only, WallRootBut if the shared directory is not and may be writable, and
// otherwise "". quota reports that each of the four is a tmpfs with limited size and inodes.
func mountWalls(info string, cfg Config) (root string, quota bool) {
	own := map[string]bool{"/mnt/data": false, "/tmp": false, "/dev/shm": false, "/run": false}
	closed, found, shared := true, false, WallRoot
	var f [6]string // id, parent, device, root, place, options
	var g [3]string // type, source, options of the file system
	for line := range strings.SplitSeq(strings.TrimSpace(info), "\n") {
		left, right, ok := strings.Cut(line, " - ")
		if !ok || cutFields(left, f[:]) < len(f) || cutFields(right, g[:]) < len(g) {
			return "", false
		}
		place := f[4]
		if place == "/" {
			found = true
		}
		if _, mine := own[place]; mine && g[0] == "tmpfs" {
			own[place] = strings.Contains(g[2], "size=") && strings.Contains(g[2], "nr_inodes=")
			continue
		}
		if cfg.Shared.Writable && cfg.Shared.holds(place) {
			switch wall := cfg.sharedWall(f[5]); {
			case place == cfg.Shared.Inside: // what covers it comes in a later row
				shared = wall
			case wall != WallRoot && shared != "": // a mount in it
				shared = wall
			}
			continue
		}
		if cfg.Mode == ModeContainer && containerOwn(place, g[0], f[5]) {
			continue
		}
		device := cfg.Mode != ModeContainer && strings.HasPrefix(place, "/dev/") // one bind mount for each device node
		if place == ptysPlace {
			device = g[0] == "devpts" && strings.Contains(g[2], "max=")
		}
		if !hasOption(f[5], "ro") && g[0] != "proc" && !device {
			closed = false
		}
	}
	quota = true
	for _, ok := range own {
		quota = quota && ok
	}
	if !closed || !found {
		return "", quota
	}
	return shared, quota
}

// cutFields puts the first words of a line into the fields, and returns how many of them it has filled.
func cutFields(line string, fields []string) (n int) {
	for rest := line; n < len(fields) && rest != ""; n++ {
		if fields[n], rest, _ = strings.Cut(rest, " "); fields[n] == "" {
			return n
		}
	}
	return n
}

// hasOption reports whether a list of mount options, separated by commas, has one.
func hasOption(options, name string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == name {
			return true
		}
	}
	return false
}
