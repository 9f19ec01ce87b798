package jail

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Names of walls, as results list them.
const (
	WallUserNS    = "user namespace"
	WallMountNS   = "mount namespace"
	WallPIDNS     = "pid namespace"
	WallNetNS     = "network namespace"
	WallIPCNS     = "ipc namespace"
	WallUTSNS     = "uts namespace"
	WallCgroupNS  = "cgroup namespace"
	WallRoot      = "read-only root"
	WallNoNetwork = "no network"
	WallEgress    = "no network but egress" // replaces WallNoNetwork: loopback only, with sockets of the server in the namespace
	WallLandlock  = "landlock"              // followed by its ABI
	WallSeccomp   = "seccomp"
	WallNoVsock   = "no vsock"
	WallNNP       = "no_new_privs"
	WallNoCaps    = "no capabilities"
	WallUnpriv    = "not the host's root"
	WallQuota     = "disk quota"
	WallTasks     = "task limit (rlimit)"
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
		walls = append(walls, n.wall)
	}
	return append(walls, WallRoot, WallNoNetwork, WallQuota, WallTasks)
}

func landlockWall(abi int) string { return WallLandlock + " (ABI " + strconv.Itoa(abi) + ")" }

// Observe returns the walls of the sandbox, as the kernel reports them for its init.
// Programs that init starts inherit these walls. Observe does not rely on the script that
// built them.
//
// Forks of a zygote do not inherit from init. Fork observes each of them before it runs a
// program. If one of them lacks a wall, Observe leaves it out.
func (s *Slot) Observe() ([]string, error) {
	s.mu.Lock()
	dead := s.dead
	s.mu.Unlock()
	if dead {
		return nil, fmt.Errorf("observe sandbox: %w", ErrEnded)
	}
	walls, err := s.observe(s.PID(), s.pidfd, s.results, s.probes)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, theirs := range s.forked {
		walls = slices.DeleteFunc(walls, func(w string) bool {
			if w == WallEgress && slices.Contains(theirs, WallNoNetwork) { // the fork was observed before the network was opened, in the same namespace
				return false
			}
			return !slices.Contains(theirs, w)
		})
	}
	return walls, nil
}

// observe returns the walls of a process of the sandbox. results are those of the
// probes that the process made.
func (s *Slot) observe(pid, pidfd int, results []int32, pr probes) ([]string, error) {
	o, err := observe(pid)
	if err != nil {
		return nil, err
	}
	proc := o.proc
	defer closeAll(proc)
	walls := []string{}
	plain := s.jail.cfg.Mode == ModePlain
	for _, n := range namespaceWalls {
		if plain { // a sandbox of ModePlain has no namespaces, and an ordinary user may not read the links
			break
		}
		theirs, linkErr := readlinkat(proc, "ns/"+n.file)
		if linkErr != nil {
			return nil, fmt.Errorf("observe namespaces: %w", linkErr)
		}
		if !s.jail.foreign[theirs] {
			walls = append(walls, n.wall)
		}
	}
	status, err := o.read("status")
	if err != nil {
		return nil, err
	}
	walls = append(walls, statusWalls(fields(status), plain)...)
	if s.jail.zeroIsNobody && !slices.Contains(walls, WallUnpriv) {
		walls = append(walls, WallUnpriv) // uid 0 in the server's user namespace is an ordinary user outside
	}
	probed := probeWalls(results, pr, s.jail.abi)
	if !slices.Contains(probed, WallNoVsock) { // the process has a filter, but not that of this package
		walls = slices.DeleteFunc(walls, func(w string) bool { return w == WallSeccomp })
	}
	walls = append(walls, probed...)
	if !plain {
		more, err := o.placeWalls(slices.Contains(walls, WallNetNS), s.tasks)
		if err != nil {
			return nil, err
		}
		if i := slices.Index(more, WallNoNetwork); i >= 0 && s.Egress() {
			more[i] = WallEgress
		}
		walls = append(walls, more...)
	}
	// The process still lives, so its process id was not reused while /proc was read.
	if ended(pidfd) {
		return nil, errors.New("observe sandbox: the process has ended")
	}
	return walls, nil
}

// lookAround records the namespaces of the server and of the builder. A namespace that
// a sandbox shares with either of them is not a wall.
func (j *Jail) lookAround() error {
	j.foreign = map[string]bool{}
	if j.cfg.Mode == ModePlain {
		return nil
	}
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return fmt.Errorf("look at ids: %w", err)
	}
	ids := strings.Fields(string(b))
	j.zeroIsNobody = len(ids) == 3 && ids[0] == "0" && ids[1] != "0"
	for _, n := range namespaceWalls {
		for _, process := range []string{"self", strconv.Itoa(j.pid)} {
			l, err := os.Readlink("/proc/" + process + "/ns/" + n.file)
			if err != nil {
				return fmt.Errorf("look at namespaces: %w", err)
			}
			j.foreign[l] = true
		}
	}
	return nil
}

// maxProcFile is far more than the mount table of a sandbox needs.
const maxProcFile = 4 << 20

// observe opens a process's directory in /proc. The caller closes observer.proc.
func observe(pid int) (observer, error) {
	proc, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return observer{}, fmt.Errorf("observe process: %w", err)
	}
	return observer{proc: proc, buf: make([]byte, 16<<10)}, nil
}

// observer reads files of one process's directory in /proc.
type observer struct {
	proc int
	buf  []byte
}

func (o *observer) read(name string) (string, error) {
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
		if n += m; m == 0 {
			return string(o.buf[:n]), nil
		}
	}
}

func readlinkat(dir int, name string) (string, error) {
	var b [64]byte
	n, err := unix.Readlinkat(dir, name, b[:])
	return string(b[:max(n, 0)]), err
}

// fields parses "Key: value" lines.
func fields(text string) map[string]string {
	m := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		if k, v, ok := strings.Cut(line, ":"); ok {
			m[k] = strings.TrimSpace(v)
		}
	}
	return m
}

func statusWalls(status map[string]string, plain bool) []string {
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
	ids := append(strings.Fields(status["Uid"]), strings.Fields(status["Gid"])...) // ids in the server's user namespace
	if len(ids) == 8 && !slices.Contains(ids, "0") {
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
	if result(pr.vsock) == unix.EAFNOSUPPORT && result(pr.setns) == unix.EPERM {
		walls = append(walls, WallNoVsock)
	}
	return walls
}

// placeWalls returns the walls that mounts, network and task limit prove.
func (o *observer) placeWalls(ownNetwork bool, tasks int) ([]string, error) {
	var walls []string
	mounts, err := o.read("mountinfo")
	if err != nil {
		return nil, err
	}
	root, quota := mountWalls(mounts)
	if root {
		walls = append(walls, WallRoot)
	}
	if quota {
		walls = append(walls, WallQuota)
	}
	net, err := o.read("net/dev")
	if err != nil {
		return nil, err
	}
	if ownNetwork && onlyLoopback(net) {
		walls = append(walls, WallNoNetwork)
	}
	limits, err := o.read("limits")
	if err != nil {
		return nil, err
	}
	if tasksLimited(limits, tasks) {
		walls = append(walls, WallTasks)
	}
	return walls, nil
}

// mountWalls parses mountinfo. root reports that everything except the sandbox's four own
// mounts is read-only. quota reports that each of the four is a tmpfs with limited size and
// inodes.
func mountWalls(info string) (root, quota bool) {
	own := map[string]bool{"/mnt/data": false, "/tmp": false, "/dev/shm": false, "/run": false}
	root, found := true, false
	for line := range strings.SplitSeq(strings.TrimSpace(info), "\n") {
		left, right, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(left), strings.Fields(right)
		if !ok || len(f) < 6 || len(g) < 3 {
			return false, false
		}
		place, options := f[4], strings.Split(f[5], ",")
		if place == "/" {
			found = true
		}
		if _, mine := own[place]; mine && g[0] == "tmpfs" {
			own[place] = strings.Contains(g[2], "size=") && strings.Contains(g[2], "nr_inodes=")
			continue
		}
		device := strings.HasPrefix(place, "/dev/") // one bind mount for each device node
		if place == ptysPlace {
			device = g[0] == "devpts" && strings.Contains(g[2], "max=")
		}
		if !slices.Contains(options, "ro") && g[0] != "proc" && !device {
			root = false
		}
	}
	quota = true
	for _, ok := range own {
		quota = quota && ok
	}
	return root && found, quota
}

func onlyLoopback(dev string) bool {
	lines := strings.Split(strings.TrimSpace(dev), "\n")
	if len(lines) < 2 {
		return false
	}
	for _, l := range lines[2:] {
		name, _, _ := strings.Cut(strings.TrimSpace(l), ":")
		if name != "lo" {
			return false
		}
	}
	return true
}

// tasksLimited reports whether the task limit is set and at most want. The limit is lower
// than want if the server's own limit is lower.
func tasksLimited(limits string, want int) bool {
	for line := range strings.SplitSeq(limits, "\n") {
		if rest, ok := strings.CutPrefix(line, "Max processes"); ok {
			f := strings.Fields(rest)
			n, err := strconv.Atoi(f[0])
			return len(f) >= 2 && err == nil && n <= want && f[0] == f[1] // soft and hard limit
		}
	}
	return false
}
