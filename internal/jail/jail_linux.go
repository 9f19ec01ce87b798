package jail

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/spare"
)

// Mode is which kind of walls a jail builds.
type Mode int

// The modes.
const (
	ModeRoot  Mode = iota // started by root: a block of user ids below it
	ModeUser              // started by anybody: one user id
	ModePlain             // no namespaces: Landlock and seccomp only
)

const (
	idsPerBlock = 65536
	maxSpawners = 4
	maxExtra    = 9 // further read-only directories of one jail

	keepFor = time.Minute // what is not used again is dropped
)

// Config is what a jail is made of.
type Config struct {
	Mode     Mode
	FirstUID int    // ModeRoot: first of idsPerBlock host user ids that nobody else uses
	ReadOnly []Tree // what all its sandboxes see beyond the system's own
	Filter   []byte // seccomp program that every sandbox loads
	Entering []byte // seccomp program of zygotes, which stays on their forks beside Filter: what that allows, and setns; empty: there are no zygotes
	Cgroup   int    // directory of a cgroup v2 group to be born into; 0: none
	Spawners int    // how many sandboxes can be in the making at once; 0: one per processor
	Keep     int    // so many untouched network namespaces of dead sandboxes are kept for the next ones; 0: none

	bare    bool          // trees shown elsewhere are bind mounts, whose paths on the host can be read: no overlay can be made
	off     map[wall]bool // tests only: walls left out
	without uint64        // tests only: namespaces that a sandbox does not get
}

// Tree is a directory, or file, of the host that sandboxes see read-only.
type Tree struct {
	Host   string
	Inside string // where it is seen; absolute
}

// Jail makes sandboxes of one mode with one view of the host's files. Its
// methods may be called concurrently.
type Jail struct {
	cfg          Config
	abi          int
	zeroIsNobody bool // the server is the root of a user namespace that an ordinary user made

	foreign  map[string]bool // namespaces that are no sandbox's own
	control  int             // the builder's socket
	pid      int
	pidfd    int
	spawners chan int
	done     chan struct{}
	networks *spare.Shelf[int] // namespaces in which no socket was ever made; nil: none are kept
	gallery  gallery           // of what is attached to sandboxes

	mu      sync.Mutex
	scripts map[plan0]*encoded // by what differs between sandboxes
	ids     map[uint32]bool    // that live sandboxes have, within the block
	next    uint32             // the one to begin the search for a free one at
	closed  bool
	gone    bool // spawners' sockets and pidfd are closed
}

// plan0 is the part of a plan that a cached script depends on.
type plan0 struct {
	size     Size
	tasks    int
	wantProc bool
}

type encoded struct {
	script *script
	probes probes
	packet []byte // with an empty head in front
}

// ErrUnavailable tells that this kernel or architecture cannot hold a jail of
// the wanted mode; the text says why.
var ErrUnavailable = errors.New("jail unavailable")

// Open starts the jail's builder and spawners and makes the template root. It
// fails with ErrUnavailable where a wall cannot be built here, and leaves
// nothing behind then.
func Open(cfg Config) (*Jail, error) {
	if len(initBytes) == 0 {
		return nil, fmt.Errorf("%w: no init for %s", ErrUnavailable, runtime.GOARCH)
	}
	if len(cfg.ReadOnly) > maxExtra {
		return nil, fmt.Errorf("open jail: %d read-only directories, at most %d", len(cfg.ReadOnly), maxExtra)
	}
	j := &Jail{cfg: cfg, abi: landlockABI(), scripts: map[plan0]*encoded{}, ids: map[uint32]bool{}, done: make(chan struct{})}
	if cfg.Keep > 0 && cfg.Mode != ModePlain {
		j.networks = spare.New(spare.Config[int]{Most: cfg.Keep, Idle: keepFor, Drop: func(fd int) { closeAll(fd) }})
	}
	if j.abi == 0 {
		return nil, fmt.Errorf("%w: the kernel has no Landlock, or it is not enabled (boot with lsm=landlock,…)", ErrUnavailable)
	}
	if cfg.Mode == ModePlain && j.abi < 6 {
		return nil, fmt.Errorf("%w: Landlock ABI %d cannot keep signals in (6 can, Linux 6.12)", ErrUnavailable, j.abi)
	}
	err := j.start()
	if errors.Is(err, errCover) {
		cfg.bare = true
		return Open(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return j, nil
}

// start forks the builder and hands it its script and the spawners' sockets.
func (j *Jail) start() error {
	n := j.cfg.Spawners
	if n <= 0 {
		n = runtime.NumCPU()
	}
	n = min(n, maxSpawners)
	ours, theirs, err := pair()
	if err != nil {
		return err
	}
	j.control, j.spawners = ours, make(chan int, n)
	err = j.fork(theirs)
	closeAll(theirs)
	if err != nil {
		closeAll(ours)
		return err
	}
	go j.reap()
	if err = j.build(n); err == nil {
		err = j.lookAround()
	}
	if err != nil {
		_ = j.Close()
	}
	return err
}

// build sends the builder its script and waits until the template stands.
func (j *Jail) build(spawners int) error {
	var passedFDs, sockets []int
	defer func() { closeAll(passedFDs...) }()
	for range spawners {
		ours, theirs, err := pair()
		if err != nil {
			return err
		}
		sockets, passedFDs = append(sockets, ours), append(passedFDs, theirs)
	}
	s := &script{}
	if j.cfg.Mode != ModePlain {
		trees := map[Tree]int{}
		if j.cfg.Mode == ModeRoot { // the builder is not root on the host: what it may not reach is opened here
			for _, t := range j.cfg.ReadOnly {
				fd, err := openTree(t.Host)
				if err != nil {
					closeAll(sockets...)
					return err
				}
				trees[t] = len(passedFDs)
				passedFDs = append(passedFDs, fd)
			}
		}
		s = templateScript(j.cfg.ReadOnly, trees, !j.cfg.bare, j.cfg.Mode == ModeUser)
	}
	p, err := s.encode(nil, 'B'|uint32(spawners)<<24)
	if err == nil {
		err = send(j.control, p, passedFDs...)
	}
	var answer []byte
	var views []int
	if err == nil {
		answer, views, err = receive(j.control, make([]byte, 256))
	}
	j.gallery.hold(views)
	switch {
	case err != nil:
	case len(answer) == 0:
		err = errors.New("builder ended at once")
	case word(answer, 0) == 'E':
		err = s.failure(word(answer, 1), word(answer, 2))
		if s.covers(word(answer, 1)) {
			err = fmt.Errorf("%w: %w", errCover, err)
		}
	}
	if err != nil {
		closeAll(sockets...)
		return fmt.Errorf("build template: %w", err)
	}
	for _, fd := range sockets {
		j.spawners <- fd
	}
	return nil
}

// openTree makes a detached read-only copy of a mount below dir.
func openTree(dir string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", dir, err)
	}
	attr := &unix.MountAttr{Attr_set: readOnly, Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr); err != nil {
		closeAll(fd)
		return -1, fmt.Errorf("protect %s: %w", dir, err)
	}
	return fd, nil
}

// fork starts the tiny program from a sealed memory file.
func (j *Jail) fork(control int) error {
	exe, err := sealedInit()
	if err != nil {
		return err
	}
	defer closeAll(exe)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	defer closeAll(null)
	attr := &syscall.SysProcAttr{PidFD: &j.pidfd, Setsid: true}
	const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	switch j.cfg.Mode {
	case ModeRoot: // its root is the first id of the block, never the host's
		attr.Cloneflags = namespaces
		m := []syscall.SysProcIDMap{{ContainerID: 0, HostID: j.cfg.FirstUID, Size: idsPerBlock}}
		attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = m, m, true
		attr.Credential = &syscall.Credential{Uid: 0, Gid: 0}
	case ModeUser:
		attr.Cloneflags = namespaces
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	case ModePlain:
	}
	if j.cfg.Cgroup > 0 {
		attr.UseCgroupFD, attr.CgroupFD = true, j.cfg.Cgroup
	}
	null3 := uintptr(null)
	pid, err := syscall.ForkExec("/proc/self/fd/"+strconv.Itoa(exe), []string{"sandboxmcp-init"}, &syscall.ProcAttr{
		Env: []string{}, Dir: "/", Files: []uintptr{null3, null3, null3, uintptr(control)}, Sys: attr,
	})
	if err != nil {
		return fmt.Errorf("start builder: %w", err)
	}
	j.pid = pid
	return nil
}

// sealedInit is the tiny program as a memory file that nobody can change.
func sealedInit() (int, error) {
	fd, err := unix.MemfdCreate("sandboxmcp-init", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("memfd_create: %w", err)
	}
	n, err := unix.Write(fd, initBytes)
	if err == nil && n < len(initBytes) {
		err = errors.New("short write")
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		closeAll(fd)
		return -1, fmt.Errorf("seal init: %w", err)
	}
	return fd, nil
}

// reap waits for the builder's end, after which nothing of the jail lives.
func (j *Jail) reap() {
	for {
		_, err := unix.Wait4(j.pid, nil, 0, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	j.networks.Close() // theirs was the user namespace that ended with it
	close(j.done)
}

// Done is closed when the jail has ended, and with it every sandbox in it.
func (j *Jail) Done() <-chan struct{} { return j.done }

// Covers reports whether sandboxes of the jail see all the trees, without one being attached.
func (j *Jail) Covers(trees []Tree) bool {
	for _, t := range trees {
		if !slices.ContainsFunc(j.cfg.ReadOnly, func(have Tree) bool {
			return t == have || t.Host == t.Inside && have.Host == have.Inside && strings.HasPrefix(t.Host, have.Host+"/")
		}) {
			return false
		}
	}
	return true
}

// Policy says in words what all sandboxes of the jail have in common besides
// the filter, so that two that differ in it can be told apart.
func (j *Jail) Policy() string {
	return fmt.Sprintf("mode=%d landlock=%d system=%v config=%v devices=%v read-only=%q", j.cfg.Mode, j.abi, systemTrees, configTrees, devices, j.cfg.ReadOnly)
}

// Networks is how many network namespaces are kept for the next sandboxes.
func (j *Jail) Networks() int { return j.networks.Len() }

// abandon ends a jail whose processes cannot be relied on any more. It may come
// late, when the number of its descriptor is another's.
func (j *Jail) abandon() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.gone {
		_ = unix.PidfdSendSignal(j.pidfd, unix.SIGKILL, nil, 0)
	}
}

// Ended reports whether the jail has, to the kernel; Done is closed a moment later.
func (j *Jail) Ended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.gone || ended(j.pidfd)
}

func ended(pidfd int) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) { // a signal of the runtime's to this thread
			return n != 0 || err != nil
		}
	}
}

// Trim gives back what is kept for the next sandboxes.
func (j *Jail) Trim() { j.networks.Empty() }

// Mode is which kind of walls the jail builds.
func (j *Jail) Mode() Mode { return j.cfg.Mode }

// LandlockABI is the version of Landlock that the sandboxes use.
func (j *Jail) LandlockABI() int { return j.abi }

// Close ends the jail and every sandbox in it, and returns when they are gone.
// It may be called more than once.
func (j *Jail) Close() error {
	j.mu.Lock()
	first := !j.closed
	j.closed = true
	j.mu.Unlock()
	if first {
		_ = unix.PidfdSendSignal(j.pidfd, unix.SIGKILL, nil, 0)
		closeAll(j.control)
	}
	select {
	case <-j.done:
	case <-time.NewTimer(5 * time.Second).C:
		return errors.New("close jail: the builder does not end")
	}
	if first {
		j.mu.Lock()
		j.gone = true
		j.gallery.close()
		closeAll(j.pidfd)
		for more := true; more; { // turns may hold some of them
			select {
			case fd := <-j.spawners:
				closeAll(fd)
			default:
				more = false
			}
		}
		j.mu.Unlock()
	}
	return nil
}
