package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/bounds"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/pool"
)

// ZygoteConfig describes a fork server: a program that is started once and then forked
// into sandboxes.
type ZygoteConfig struct {
	Argv    []string // the program, its options, the path of the text in /run/program, and the text's arguments
	Options int      // index of the text in Argv
	Env     []string // the whole environment; it may not hold secrets
	Text    []byte   // the server's own; it speaks the wire of zygotes (see doc.go)
	Stays   bool     // forks live long: they do not copy pages ahead and share memory with the zygote
}

// Zygote is a process that waits to be forked into sandboxes of its jail. It
// runs in the jail's user and pid namespaces, with the two capabilities that entering
// a sandbox needs, and in a network namespace without an interface. Its methods may be
// called concurrently.
type Zygote struct {
	jail    *Jail
	options int
	broken  atomic.Bool
	once    sync.Once

	life      sync.Mutex                    // guards pidfd; never held for long
	pidfd     int                           // -1: closed
	snapshots *pool.Pool[string, *Snapshot] // by name

	mu      sync.Mutex // one fork at a time
	control int        // -1: closed
	plans   map[childPlan]*childScript
}

// childPlan is the key of a cached script of forks.
type childPlan struct {
	size  Size
	tasks int
}

type childScript struct {
	number uint32
	probes probes
}

const (
	zygoteRights = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE // SYS_ADMIN to enter namespaces; SYS_PTRACE to do so through an init that is not dumpable
	zygoteFiles  = 256
)

// Zygote starts a fork server and returns when it is ready to fork. It fails if the
// kernel does not confirm its capabilities, filter and namespaces. The
// caller closes the zygote.
func (j *Jail) Zygote(cfg ZygoteConfig) (*Zygote, error) {
	if j.cfg.Mode == ModePlain || len(j.cfg.Entering) == 0 || cfg.Options < 1 || cfg.Options >= len(cfg.Argv) {
		return nil, errors.ErrUnsupported
	}
	files := uint64(0)
	if j.cfg.Mode == ModeUser && !j.cfg.off[wallRlimits] {
		files = ownFiles()
	}
	s, err := zygoteScript(cfg, j.cfg.Entering)
	if err != nil {
		return nil, err
	}
	packet, err := s.encode(make([]byte, makeHead), 'B')
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	le.PutUint32(packet[0:], 'M')
	le.PutUint32(packet[4:], modePlain) // no ids to map
	le.PutUint64(packet[8:], unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS)
	le.PutUint32(packet[24:], makeHead)
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	var out [2]int
	if err = unix.Pipe2(out[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		closeAll(ours, theirs)
		return nil, err
	}
	defer closeAll(out[0]) // the zygote's own output is discarded
	slot := &Slot{jail: j, pidfd: -1, network: -1}
	turn, err := j.Turn()
	if err == nil {
		err = slot.spawn(turn.spawner, packet, []int{theirs, out[1]}, func() error { return nil })
		turn.Cancel()
	}
	closeAll(theirs, out[1])
	z := &Zygote{jail: j, options: cfg.Options, pidfd: slot.pidfd, control: ours, plans: map[childPlan]*childScript{}}
	z.snapshots = pool.New(pool.Policy[string, *Snapshot]{Total: MaxSnapshots, Drop: func(s *Snapshot) error { s.Close(); return nil }})
	if err == nil {
		_ = send(ours, zygoteFacts(cfg.Stays, files)) // on error the zygote has ended; ready reports it
		err = z.ready(s)
	}
	if err == nil {
		err = z.check()
	}
	if err != nil {
		z.Close()
		return nil, fmt.Errorf("start zygote: %w", err)
	}
	return z, nil
}

// ready waits until the fork server is ready to fork.
func (z *Zygote) ready(s *script) error {
	defer func() { _ = hearFor(z.control, forkLimit) }()
	var b [64]byte
	answer, fds, err := receive(z.control, b[:])
	closeAll(fds...)
	switch {
	case err != nil:
		return err
	case word(answer, 0) == 'E':
		return s.failure(word(answer, 1), word(answer, 2))
	case word(answer, 0) != 'R':
		return errors.New("the interpreter ended at once")
	}
	return nil
}

// forkLimit bounds the time to fork, to build a fork's walls, and to load a snapshot.
// Each takes milliseconds.
const forkLimit = 3 * time.Second

// check verifies in /proc that the interpreter has only the capabilities that it needs, a
// filter, a single thread, no writable memory that forks would share, and its own network
// namespace.
func (z *Zygote) check() error {
	pid, err := hostPID(z.pidfd)
	if err != nil {
		return err
	}
	o, err := observe(pid)
	if err != nil {
		return err
	}
	defer o.close()
	text, err := o.read("status")
	if err != nil {
		return err
	}
	rights := fmt.Sprintf("%016x", uint64(zygoteRights))
	wanted := map[string]string{"CapInh": strings.Repeat("0", 16), "CapPrm": rights, "CapEff": rights, "CapBnd": rights, "CapAmb": strings.Repeat("0", 16), "NoNewPrivs": "1", "Seccomp": "2", "Threads": "1"}
	status := fields(text, slices.Collect(maps.Keys(wanted))...)
	for name, want := range wanted {
		if status[name] != want {
			return fmt.Errorf("%s is %s, want %s", name, status[name], want)
		}
	}
	if err = z.filtered(text); err != nil {
		return err
	}
	maps, err := o.read("maps")
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(maps, "\n") {
		if f := strings.Fields(line); len(f) > 1 && len(f[1]) == 4 && f[1][1] == 'w' && f[1][3] == 's' {
			return errors.New("the interpreter has memory that its forks would share")
		}
	}
	theirs, err := readlinkat(o.proc, "ns/net")
	if err != nil {
		return err
	}
	if z.jail.foreign[theirs] {
		return errors.New("the interpreter is in its parent's network namespace")
	}
	return nil
}

// filtered returns an error if a zygote with this status has no filter of its own, besides those that it has
// inherited from the builder. Before Linux 5.9, the status does not say how many it has.
func (z *Zygote) filtered(status string) error {
	o, err := observe(z.jail.pid)
	if err != nil {
		return err
	}
	defer o.close()
	text, err := o.read("status")
	if err != nil {
		return err
	}
	const name = "Seccomp_filters"
	own, ownErr := strconv.Atoi(fields(status, name)[name])
	inherited, err := strconv.Atoi(fields(text, name)[name])
	if ownErr == nil && err == nil && own <= inherited {
		return fmt.Errorf("%s is %d, want more than the %d of the builder", name, own, inherited)
	}
	return nil
}

// zygoteFacts is the first packet to a fork server. files is the limit of open files of
// its forks; 0: that of their walls.
func zygoteFacts(stays bool, files uint64) []byte {
	long := uint32(0)
	if stays {
		long = 1
	}
	p := words('H', unix.SYS_MMAP, unix.SYS_MPROTECT, long)
	return append(binary.LittleEndian.AppendUint64(p, files), snapshotBytes...)
}

// zygoteScript returns the script that turns a process of the jail into the fork server.
func zygoteScript(cfg ZygoteConfig, filter []byte) (*script, error) {
	s, path := &script{}, cfg.Argv[cfg.Options]
	name, ok := strings.CutPrefix(path, programPlace+"/")
	if !ok || strings.ContainsRune(name, '/') {
		return nil, fmt.Errorf("start zygote: %s is not in %s", path, programPlace)
	}
	s.firstOutOfMemory(false)
	s.do("setsid", unix.SYS_SETSID)
	s.do("umask", unix.SYS_UMASK, num(0o022))
	s.do("signals of children", unix.SYS_RT_SIGACTION, num(unix.SIGCHLD), s.bytes(make([]byte, 32)), num(0), num(8))
	s.mount("run", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=1m,nr_inodes=16")
	s.do("mkdir "+programPlace, unix.SYS_MKDIRAT, num(unix.AT_FDCWD), s.str(programPlace), num(0o755))
	s.file(path, cfg.Text)
	s.mount("", "/run", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	s.do("chdir /", unix.SYS_CHDIR, s.str("/"))
	for c := range lastCap() + 1 {
		if zygoteRights>>c&1 == 0 {
			s.try("drop capability from the bounding set", unix.SYS_PRCTL, num(unix.PR_CAPBSET_DROP), num(c), num(0), num(0), num(0))
		}
	}
	head := binary.LittleEndian.AppendUint32(nil, unix.LINUX_CAPABILITY_VERSION_3)
	head = binary.LittleEndian.AppendUint32(head, 0)
	sets := make([]byte, 24)
	binary.LittleEndian.PutUint32(sets[0:], zygoteRights)
	binary.LittleEndian.PutUint32(sets[4:], zygoteRights)
	s.do("drop capabilities", unix.SYS_CAPSET, s.bytes(head), s.bytes(sets))
	s.do("no_new_privs", unix.SYS_PRCTL, num(unix.PR_SET_NO_NEW_PRIVS), num(1), num(0), num(0), num(0))
	limit := binary.LittleEndian.AppendUint64(make([]byte, 0, 16), uint64(min(zygoteFiles, hardLimit(unix.RLIMIT_NOFILE))))
	core := binary.LittleEndian.AppendUint64(nil, bounds.CoreBytes)
	s.do("limit core", unix.SYS_PRLIMIT64, num(0), num(unix.RLIMIT_CORE), s.bytes(append(core, core...)), num(0))
	soft := append(slices.Clone(limit), binary.LittleEndian.AppendUint64(nil, uint64(hardLimit(unix.RLIMIT_NOFILE)))...)
	s.do("limit nofile", unix.SYS_PRLIMIT64, num(0), num(unix.RLIMIT_NOFILE), s.bytes(soft), num(0))
	for _, fd := range []int{1, 2} {
		s.do("streams", unix.SYS_DUP3, passed(0), num(fd), num(0))
	}
	s.do("close the rest", unix.SYS_CLOSE_RANGE, num(4), num(uint64(^uint32(0))), num(unix.CLOSE_RANGE_CLOEXEC))
	s.do("keep the socket", unix.SYS_FCNTL, num(controlSocket), num(unix.F_SETFD), num(0))
	s.seccomp(filter, false)
	s.do("execute "+cfg.Argv[0], unix.SYS_EXECVE, s.str(cfg.Argv[0]), s.strings(cfg.Argv), s.strings(cfg.Env))
	return s, nil
}

// strings returns a NULL-terminated array of strings, as execve takes it.
func (s *script) strings(list []string) arg {
	var at8 []arg
	for _, v := range list {
		at8 = append(at8, s.str(v))
	}
	array := s.bytes(make([]byte, 8*(len(list)+1)))
	for i, a := range at8 {
		s.store("place of a string", store64, at(array, uint64(8*i)), a)
	}
	return array
}

// childWalls returns the script that puts a sandbox's walls around a fork. They are
// those of wallScript; the fork does not inherit them, because it is not a child of
// init. Its descriptors are init's pidfd, the fork's socket, the sandbox's Landlock
// ruleset and the cgroup's v1 "tasks" files.
func childWalls(p plan) (*script, probes) {
	s := &script{}
	zero := s.str("0")
	for i := range p.tasks {
		s.do("enter cgroup", unix.SYS_WRITE, passed(3+i), zero, num(1))
	}
	const all = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	s.do("enter the sandbox", unix.SYS_SETNS, passed(0), num(all&^p.without))
	// All forks of a zygote have its streams, and code of packages may run before a program brings others.
	s.do("close the zygote's streams", unix.SYS_CLOSE_RANGE, num(0), num(2), num(0))
	s.do("open /dev/null", unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str("/dev/null"), num(unix.O_RDWR), num(0))
	for range 2 {
		s.do("streams", unix.SYS_DUP, num(0))
	}
	s.do("setsid", unix.SYS_SETSID)
	s.do("umask", unix.SYS_UMASK, num(0o022))
	if !p.off[wallIDs] {
		s.ids(p)
	}
	if !p.off[wallCaps] {
		s.boundRights()
		s.dropRights()
	}
	s.do("no_new_privs", unix.SYS_PRCTL, num(unix.PR_SET_NO_NEW_PRIVS), num(1), num(0), num(0), num(0))
	s.do("dumpable, as after execve", unix.SYS_PRCTL, num(unix.PR_SET_DUMPABLE), num(1), num(0), num(0), num(0))
	if !p.off[wallRlimits] {
		s.rlimits(p)
	}
	if !p.off[wallLandlock] {
		s.do("landlock", unix.SYS_LANDLOCK_RESTRICT_SELF, passed(2), num(quiet(p.abi)))
	}
	var pr probes
	pr.landlock = s.probe("look: write below "+programPlace, unix.SYS_OPENAT, num(unix.AT_FDCWD), s.str(programPlace+"/.probe"), num(unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC), num(0o600))
	if !p.off[wallSeccomp] {
		if listener := s.seccomp(p.filter, p.notices); p.notices {
			s.give(listener)
		}
	}
	s.filterProbes(&pr)
	return s, pr
}

// maxPlans is how many scripts a zygote keeps.
const maxPlans = 32

// wallsLocked returns the script for forks of this size. The first time it sends the
// script to the interpreter. The caller holds z.mu.
func (z *Zygote) wallsLocked(size Size, tasks int) (*childScript, error) {
	size.WorkBytes, size.WorkInodes, size.TempBytes = 0, 0, 0 // the script does not depend on these
	key := childPlan{size, tasks}
	if have := z.plans[key]; have != nil {
		return have, nil
	}
	j := z.jail
	s, pr := childWalls(plan{size: size, root: j.cfg.Mode == ModeRoot, tasks: tasks, abi: j.abi, filter: j.cfg.Filter, notices: j.cfg.Notices, off: j.cfg.off, without: j.cfg.without})
	number, old := uint32(len(z.plans)), childPlan{}
	if number >= maxPlans { // replace an arbitrary one
		for k, cs := range z.plans {
			number, old = cs.number, k
			break
		}
	}
	body, err := s.encode(nil, 'B')
	if err != nil {
		return nil, err
	}
	if err := z.askLocked(append(words('W', number), body...)); err != nil {
		return nil, err
	}
	if len(z.plans) >= maxPlans { // only now: if the request had failed, the numbers would have a gap
		delete(z.plans, old)
	}
	have := &childScript{number, pr}
	z.plans[key] = have
	return have, nil
}

// askLocked sends a request and waits for its answer. The caller holds z.mu.
func (z *Zygote) askLocked(packet []byte, fds ...int) error {
	if z.control < 0 || z.broken.Load() { // the next answer may belong to an earlier request
		return fmt.Errorf("%w: the zygote is closed", ErrNotForked)
	}
	if err := send(z.control, packet, fds...); err != nil {
		z.broken.Store(true)
		return fmt.Errorf("%w: ask zygote: %w", ErrNotForked, err)
	}
	var b [64]byte
	answer, got, err := receive(z.control, b[:])
	closeAll(got...)
	switch {
	case err != nil:
		z.broken.Store(true)
		return fmt.Errorf("zygote: %w", err)
	case word(answer, 0) == 'P':
		return nil
	case word(answer, 0) == 'E':
		return fmt.Errorf("%w: %w", ErrNotForked, unix.Errno(word(answer, 1)))
	}
	z.broken.Store(true)
	return errors.New("the zygote has ended")
}

// Broken reports that the zygote must be discarded: it has ended or does not answer, or
// a fork failed its checks.
func (z *Zygote) Broken() bool { return z.broken.Load() }

// ErrNotForked means that a fork failed and that no process of it is left.
var ErrNotForked = errors.New("not forked")

// Close ends the interpreter. Its forks continue. Close may be called more than once.
func (z *Zygote) Close() {
	z.once.Do(func() {
		z.kill() // a request that waits for an answer now reads end of file
		z.mu.Lock()
		defer z.mu.Unlock()
		closeAll(z.control)
		z.control = -1
		if z.pidfd >= 0 { // no lock: only Close changes it
			_ = waitPidfd(z.pidfd, answerLimit)
		}
		z.life.Lock()
		defer z.life.Unlock()
		closeAll(z.pidfd)
		z.pidfd = -1
		_ = z.snapshots.Close()
	})
}

// kill kills the interpreter and closes no descriptor. It does not wait for a request.
func (z *Zygote) kill() {
	z.life.Lock()
	defer z.life.Unlock()
	if z.pidfd >= 0 {
		_ = unix.PidfdSendSignal(z.pidfd, unix.SIGKILL, nil, 0)
	}
}

// PID returns the interpreter's process id on the host.
func (z *Zygote) PID() int {
	z.life.Lock()
	defer z.life.Unlock()
	n, _ := hostPID(z.pidfd)
	return n
}
