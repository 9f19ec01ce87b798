package jail

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/pool"
)

// Mode says which kinds of walls a jail can build.
type Mode int

// The modes.
const (
	ModeRoot      Mode = iota // the server is root: sandboxes get user ids from a block of host ids
	ModeUser                  // the server is an ordinary user: sandboxes run as that host user
	ModePlain                 // no namespaces: Landlock and seccomp only
	ModeContainer             // the server is root: a container engine makes the namespaces and the server adopts their init, see Jail.Adopt
)

const (
	idsPerBlock = 65536
	maxSpawners = 4
	maxExtra    = 9  // most entries of Config.ReadOnly
	maxPassed   = 16 // MAXFD in init.c

	keepFor = time.Minute // a kept network namespace that is not reused for this long is closed
)

// Config describes a jail.
type Config struct {
	Mode     Mode
	FirstUID int                 // ModeRoot: first of idsPerBlock host user ids that no other process uses
	ReadOnly []Tree              // what all sandboxes see besides the system's own directories
	Root     string              // directory whose system's directories sandboxes see in place of the host's; needs namespaces. Empty: the host's
	Shared   Shared              // a directory of the host that may change
	Finish   func(*Config) error // sets First and the fields of filters, of which nothing depends before the template is made; nil: they are set
	First    *SlotConfig         // the sandbox that is probably made first, without Enter and Effort; its script is made ahead. nil: it is not known
	Common   []byte              // seccomp program that the builder loads last, and that all other processes of the jail inherit (seccomp.Common); not in ModePlain and ModeContainer. Empty: none
	Filter   []byte              // seccomp program that every sandbox loads; with Common, only the rest (seccomp.Rest). Likewise Entering
	Notices  bool                // Filter makes calls wait for init (seccomp.Variant.Notices); needs HaveNotices
	Entering []byte              // seccomp program of zygotes: what Filter allows, and also setns. Forks of a zygote keep it and add Filter. Empty: the jail has no zygotes
	Cgroup   int                 // directory of the cgroup v2 group that the builder starts in; 0: the server's group

	// Builder was started for the jail before the rest of its configuration was known. It is used if it
	// has the same mode, user ids and group, and once. nil: none.
	Builder *Builder

	Spawners int // how many sandboxes can be built at once; 0: one per processor
	Keep     int // how many unused network namespaces of closed sandboxes are kept for new ones; 0: none

	bare    bool          // the kernel makes no overlays here: trees at another path are bind mounts, and mountinfo shows their host path
	sent    bool          // the server sends the bytes of all files of the system, because the builder could not copy one
	copies  []copied      // tests only: further files of the system
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
	cfg  Config
	abi  int
	root hostRoot // of the host, as the server sees its ids

	foreign  map[string]bool // namespaces of the server and the builder
	borrows  bool            // ModeRoot: the server may not copy mounts, see borrow
	control  int             // the builder's socket
	pid      int
	pidfd    int
	spawners chan int
	done     chan struct{}
	networks *pool.Pool[struct{}, keptNetwork] // network namespaces in which no network socket was ever made; nil: none are kept
	gallery  gallery                           // of what is attached to sandboxes
	shared   shared                            // Config.Shared, for ModeRoot

	mu      sync.Mutex
	scripts map[plan0]*encoded // scripts of inits that were built before
	ids     map[uint32]bool    // user ids of live sandboxes, counted from Config.FirstUID
	next    uint32             // where the search for a free user id starts
	closed  bool
	gone    bool // spawners' sockets and pidfd are closed
}

// listeners returns how many listeners the filter of a fork has.
func (j *Jail) listeners() int {
	if j.cfg.Notices && !j.cfg.off[wallSeccomp] {
		return 1
	}
	return 0
}

// plan0 is the key of a cached script: the part of a plan that differs between sandboxes.
type plan0 struct {
	size     Size
	tasks    int
	wantProc bool
	terminal bool
	apart    bool
	lists    lists
}

type encoded struct {
	script *script
	probes probes
	packet []byte // makeHead zero bytes, then the script
}

// ErrUnavailable means that this kernel or architecture cannot hold a jail of
// the wanted mode. The error text says why.
var ErrUnavailable = errors.New("jail unavailable")

// Open starts the jail's builder and spawners and makes the template root. If a
// wall cannot be built on this machine, Open fails with ErrUnavailable and leaves
// nothing behind. The caller closes the jail.
func Open(cfg Config) (*Jail, error) {
	if len(initBytes) == 0 {
		return nil, fmt.Errorf("%w: no init for %s", ErrUnavailable, runtime.GOARCH)
	}
	if len(cfg.ReadOnly) > maxExtra {
		return nil, fmt.Errorf("open jail: %d read-only directories, at most %d", len(cfg.ReadOnly), maxExtra)
	}
	if cfg.Root != "" && cfg.Mode == ModePlain {
		return nil, fmt.Errorf("%w: a root file system of its own needs namespaces", ErrUnavailable)
	}
	if len(cfg.Common) > 0 && (cfg.Mode == ModePlain || cfg.Mode == ModeContainer) {
		return nil, errors.New("open jail: nothing loads the common filter in this mode")
	}
	j := &Jail{cfg: cfg, abi: landlockABI(), scripts: map[plan0]*encoded{}, ids: map[uint32]bool{}, done: make(chan struct{})}
	if cfg.Keep > 0 && cfg.Mode != ModePlain && cfg.Mode != ModeContainer {
		j.networks = pool.New(pool.Policy[struct{}, keptNetwork]{
			Total: cfg.Keep, Idle: keepFor,
			Drop: func(n keptNetwork) error { closeAll(n.fd); return nil },
			Cost: func(_ keptNetwork, counts map[string]int) { counts["network_namespaces"]++ },
		})
	}
	if err := checkProc(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if j.abi == 0 {
		return nil, fmt.Errorf("%w: the kernel has no Landlock, or it is not enabled (boot with lsm=landlock,…)", ErrUnavailable)
	}
	if cfg.Mode == ModePlain && j.abi < 6 {
		return nil, fmt.Errorf("%w: Landlock ABI %d cannot keep signals in (6 can, Linux 6.12)", ErrUnavailable, j.abi)
	}
	err := j.openShared()
	if err != nil {
		return nil, err
	}
	err = j.start()
	if err != nil {
		j.shared.close()
	}
	switch {
	case errors.Is(err, errCover) && !cfg.bare:
		cfg.bare = true
		return Open(cfg)
	case errors.Is(err, errCopy) && !cfg.sent:
		cfg.sent = true
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
	planned := make(chan buildPlan, 1)
	j.borrows = j.cfg.Mode == ModeRoot && !copiesMounts()
	if !j.borrows {
		go func() { planned <- j.plan(n) }() // while the builder starts
	}
	b := j.cfg.Builder.take(j.cfg)
	if b == nil {
		b = StartBuilder(j.cfg.Mode, j.cfg.FirstUID, j.cfg.Cgroup, nil)
	}
	<-b.started
	if j.borrows {
		j.pid = b.pid
		planned <- j.plan(n)
	}
	p := <-planned
	defer closeAll(p.passed...)
	if b.err != nil {
		closeAll(p.sockets...)
		return b.err
	}
	j.control, j.pid, j.pidfd, j.spawners = b.control, b.pid, b.pidfd, make(chan int, n)
	go j.reap()
	err := j.build(p)
	if err == nil {
		err = j.lookAt(strconv.Itoa(j.pid))
	}
	if err != nil {
		_ = j.Close()
	}
	return err
}

// buildPlan is what a builder gets.
type buildPlan struct {
	script  *script
	passed  []int // descriptors; the first ones are the spawners' ends of sockets
	sockets []int // the server's ends
	err     error
}

// plan makes the plan of a jail with n spawners. The caller closes its descriptors.
func (j *Jail) plan(n int) (p buildPlan) {
	for range n {
		ours, theirs, err := pair()
		if err != nil {
			p.err = err
			return p
		}
		p.sockets, p.passed = append(p.sockets, ours), append(p.passed, theirs)
	}
	p.script, p.passed, p.err = j.rootScript(p.passed)
	return p
}

// build sends the builder its plan and waits until the template root is complete. Meanwhile it finishes what the sandboxes
// need. It takes or closes the sockets.
func (j *Jail) build(plan buildPlan) error {
	if plan.err != nil {
		closeAll(plan.sockets...)
		return fmt.Errorf("build template: %w", j.withRight(plan.err))
	}
	s, passedFDs, sockets, spawners := plan.script, plan.passed, plan.sockets, len(plan.sockets)
	kind := 'B' | uint32(spawners)<<24
	p, err := s.encode(nil, kind)
	if err == nil && len(passedFDs) > maxPassed {
		err = fmt.Errorf("%d directories, at most %d", len(passedFDs)-spawners, maxPassed-spawners)
	}
	if err == nil {
		err = send(j.control, p, passedFDs...)
	}
	var unfinished error
	if err == nil {
		unfinished = j.finish()
		err = j.built(s)
	}
	if err != nil {
		err = fmt.Errorf("build template: %w", withLimit(j.withRight(err), hardLimit(unix.RLIMIT_NOFILE)))
	}
	if err = cmp.Or(err, unfinished); err != nil {
		closeAll(sockets...)
		return err
	}
	for _, fd := range sockets {
		j.spawners <- fd
	}
	return nil
}

// built receives the builder's answer to its script.
func (j *Jail) built(s *script) error {
	answer, views, err := receive(j.control, make([]byte, 256))
	j.gallery.hold(views)
	switch {
	case err != nil:
		return err
	case len(answer) == 0:
		return errors.New("builder ended at once")
	case word(answer, 0) == 'E':
		err = s.failure(word(answer, 1), word(answer, 2))
		if s.covers(word(answer, 1)) {
			err = fmt.Errorf("%w: %w", errCover, err)
		}
		if s.copies(word(answer, 1)) {
			err = fmt.Errorf("%w: %w", errCopy, err)
		}
	}
	return err
}

// finish makes what sandboxes need besides the template: the filters, facts of the host, and the script of the first sandbox.
func (j *Jail) finish() error {
	if j.cfg.Finish != nil {
		if err := j.cfg.Finish(&j.cfg); err != nil {
			return err
		}
	}
	if err := j.lookAround(); err != nil {
		return err
	}
	if first := j.cfg.First; first != nil {
		_, err := j.encoded(*first)
		return err
	}
	return nil
}

// fewFiles is a limit of open files that suffices. Below it, EBADF and EMFILE may be failures because of the limit.
const fewFiles = 256

// withLimit adds the limit of open files to an error that it may have caused. EBADF is one, because a script of the jail
// gives descriptors fixed numbers, which may be above the limit.
func withLimit(err error, limit int64) error {
	if limit < fewFiles && (errors.Is(err, unix.EBADF) || errors.Is(err, unix.EMFILE)) {
		return fmt.Errorf("%w: a process may have %d open files (RLIMIT_NOFILE), fewer than %d", err, limit, fewFiles)
	}
	return err
}

// rootScript returns the script that makes the template root, and fds with the descriptors that it
// needs added, also on error.
func (j *Jail) rootScript(fds []int) (*script, []int, error) {
	switch j.cfg.Mode {
	case ModePlain:
		return &script{}, fds, nil
	case ModeContainer:
		return containerScript(), fds, nil
	case ModeRoot, ModeUser:
	}
	sys, err := systemBelow(j.cfg.Root)
	if err != nil {
		return nil, fds, err
	}
	sys.copies = append(sys.copies, j.cfg.copies...)
	for i := range sys.copies {
		sys.copies[i].open = sys.copies[i].open && !j.cfg.sent
	}
	trees, shared := map[Tree]int{}, none
	if j.cfg.Mode == ModeRoot { // the builder is not root on the host and may lack access: the server opens the directories
		open := slices.Clone(j.cfg.ReadOnly)
		if j.cfg.Root != "" {
			open = append(open, sys.trees...)
		}
		if j.cfg.Shared.Host != "" && !j.cfg.Shared.Writable {
			open = append(open, Tree{Host: j.cfg.Shared.Host})
		}
		opened, err := j.openTrees(-1, open)
		if err != nil {
			return nil, fds, err
		}
		for i, t := range open {
			trees[t] = len(fds) + i
		}
		if at, ok := trees[Tree{Host: j.cfg.Shared.Host}]; ok {
			shared = passed(at)
		}
		fds = append(fds, opened...)
	}
	return templateScript(j.cfg, sys, trees, shared, j.cfg.Mode == ModeRoot && !j.borrows), fds, nil
}

// withRight adds the right that the server lacks to an error that this may have caused: the directories of other users are
// closed to it, see borrow.
func (j *Jail) withRight(err error) error {
	if j.borrows && errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: without CAP_SYS_ADMIN, root shows only directories of its own and those that every user may reach", err)
	}
	return err
}

// reap waits until the builder has ended. The kernel ends every other process of
// the jail before it reports that.
func (j *Jail) reap() {
	await(j.pid)
	_ = j.networks.Close() // the kept namespaces belong to the builder's user namespace, which has ended
	close(j.done)
}

// Done returns a channel that is closed when the jail and every sandbox in it have ended.
func (j *Jail) Done() <-chan struct{} { return j.done }

// Covers reports whether all sandboxes of the jail see all the trees without Attach.
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

// Policy describes what all sandboxes of the jail have in common, except the seccomp
// filter. Its hash tells different policies apart.
func (j *Jail) Policy() string {
	trees := make([]string, 0, len(j.cfg.ReadOnly))
	for _, t := range j.cfg.ReadOnly {
		trees = append(trees, t.Host+" at "+t.Inside)
	}
	return fmt.Sprintf("mode=%d landlock=%d root=%q system=%v config=%v devices=%v read-only=%q shared=%+v", j.cfg.Mode, j.abi, j.cfg.Root, systemTrees, configTrees, devices, trees, j.cfg.Shared)
}

// Kept returns the pool of the network namespaces that are kept for new sandboxes.
func (j *Jail) Kept() pool.Keeper { return j.networks }

// abandon kills a jail whose processes no longer answer correctly. It may be called
// after Close, when the descriptor number pidfd may belong to another file.
func (j *Jail) abandon() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.gone {
		_ = unix.PidfdSendSignal(j.pidfd, unix.SIGKILL, nil, 0)
	}
}

// Ended reports whether the builder has ended, as the kernel says. Done is closed
// a moment later.
func (j *Jail) Ended() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.gone || ended(j.pidfd)
}

// ended reports whether one of these processes has ended.
func ended(pidfds ...int) bool {
	var room [2]unix.PollFd
	all := room[:0]
	for _, fd := range pidfds {
		all = append(all, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	for {
		n, err := unix.Poll(all, 0)
		if !errors.Is(err, unix.EINTR) { // EINTR: a signal to this thread
			return n != 0 || err != nil
		}
	}
}

// Mode returns the mode that the jail was opened with.
func (j *Jail) Mode() Mode { return j.cfg.Mode }

// LandlockABI returns the Landlock version that the sandboxes use.
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
		closeAll(j.pidfd)
		for more := true; more; { // a Turn may hold a spawner; giveBack closes that one
			select {
			case fd := <-j.spawners:
				closeAll(fd)
			default:
				more = false
			}
		}
		j.mu.Unlock()
		// Without j.mu: an Attach may hold the lock of the gallery, and gives its spawner back.
		j.gallery.close()
		j.shared.close()
	}
	return nil
}
