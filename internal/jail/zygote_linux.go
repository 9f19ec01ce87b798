package jail

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// zygoteText is the beginning of the script of an interpreter that is forked.
//
//go:embed zygote.py
var zygoteText string

// ZygoteConfig is an interpreter that is started once, to be forked into
// sandboxes.
type ZygoteConfig struct {
	Argv    []string // the interpreter, its options, and then the script, a file of /run/program, and its arguments
	Options int      // how many of Argv stand before the script
	Env     []string // the whole environment; nothing in it may be a secret
	Script  []byte   // the script's text
	Preload []byte   // the server's own text, run before it waits; it may import nothing but the interpreter's own modules
	Stays   bool     // its forks live for long, and so share memory for as long as they can
}

// Zygote is an interpreter that waits to be forked into sandboxes of its jail. It
// is in the jail's own user and pid namespaces, has the rights to enter sandboxes
// and no others, and a network without an interface. Its methods may be called
// concurrently.
type Zygote struct {
	jail    *Jail
	options int
	broken  atomic.Bool
	once    sync.Once

	life      sync.Mutex // of pidfd and snapshots; never held for long
	pidfd     int        // -1: given back
	snapshots map[string]*Snapshot

	mu      sync.Mutex // one fork at a time
	control int        // -1: closed
	plans   map[childPlan]*childScript
}

// childPlan is what a fork's script depends on.
type childPlan struct {
	size  Size
	tasks int
}

type childScript struct {
	number uint32
	probes probes
}

const (
	zygoteRights = 1<<unix.CAP_SYS_ADMIN | 1<<unix.CAP_SYS_PTRACE // enter namespaces; of an init that is not dumpable
	zygoteFiles  = 256
)

// Zygote starts an interpreter and returns when it waits. It fails where what the
// kernel tells of it is not what it should be.
func (j *Jail) Zygote(cfg ZygoteConfig) (*Zygote, error) {
	if j.cfg.Mode == ModePlain || len(j.cfg.Entering) == 0 || cfg.Options < 1 || cfg.Options >= len(cfg.Argv) {
		return nil, errors.ErrUnsupported
	}
	files := uint64(0)
	if j.cfg.Mode == ModeUser && !j.cfg.off[wallRlimits] {
		files = ownFiles()
	}
	s, err := zygoteScript(cfg, j.cfg.Entering, files)
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
	defer closeAll(out[0]) // what it says on its own streams is lost, and may not hold it up
	slot := &Slot{jail: j, pidfd: -1, network: -1}
	turn, err := j.Turn()
	if err == nil {
		err = slot.spawn(turn.spawner, packet, []int{theirs, out[1]}, func() error { return nil })
		turn.Cancel()
	}
	closeAll(theirs, out[1])
	z := &Zygote{jail: j, options: cfg.Options, pidfd: slot.pidfd, control: ours, plans: map[childPlan]*childScript{}, snapshots: map[string]*Snapshot{}}
	if err == nil {
		err = z.ready(s)
	}
	if err == nil {
		err = z.look()
	}
	if err != nil {
		z.Close()
		return nil, fmt.Errorf("start zygote: %w", err)
	}
	return z, nil
}

// ready waits until the interpreter stands.
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
		return errors.New("it ended at once")
	}
	return nil
}

// forkLimit is how long an interpreter may take to fork, and a fork to put its
// walls up or to load a snapshot. They take milliseconds.
const forkLimit = 3 * time.Second

// look compares what the kernel tells of the interpreter with what it has to be:
// without rights beyond those that it needs, single-threaded, and without memory
// that its forks would share.
func (z *Zygote) look() error {
	pid, err := hostPID(z.pidfd)
	if err != nil {
		return err
	}
	o, err := observe(pid)
	if err != nil {
		return err
	}
	defer closeAll(o.proc)
	text, err := o.read("status")
	if err != nil {
		return err
	}
	status, rights := fields(text), fmt.Sprintf("%016x", uint64(zygoteRights))
	for name, want := range map[string]string{"CapInh": strings.Repeat("0", 16), "CapPrm": rights, "CapEff": rights, "CapBnd": rights, "CapAmb": strings.Repeat("0", 16), "NoNewPrivs": "1", "Seccomp": "2", "Threads": "1"} {
		if status[name] != want {
			return fmt.Errorf("%s is %s, not %s", name, status[name], want)
		}
	}
	maps, err := o.read("maps")
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(maps, "\n") {
		if f := strings.Fields(line); len(f) > 1 && len(f[1]) == 4 && f[1][1] == 'w' && f[1][3] == 's' {
			return errors.New("it has memory that its forks would share")
		}
	}
	theirs, err := readlinkat(o.proc, "ns/net")
	if err != nil {
		return err
	}
	if z.jail.foreign[theirs] {
		return errors.New("it has the network of its parent")
	}
	return nil
}

// zygoteScript makes a process of the jail the interpreter. Its forks may open as
// many files as their walls say, or as files says unless it is 0.
func zygoteScript(cfg ZygoteConfig, filter []byte, files uint64) (*script, error) {
	s, path := &script{}, cfg.Argv[cfg.Options]
	name, ok := strings.CutPrefix(path, programPlace+"/")
	if !ok || strings.ContainsRune(name, '/') {
		return nil, fmt.Errorf("start zygote: %s is not in %s", path, programPlace)
	}
	stays := 0
	if cfg.Stays {
		stays = 1
	}
	facts := fmt.Sprintf("%d, %d, %d, %d, %d, %d, %d, %s", unix.SYS_SETNS, unix.SYS_MADVISE, unix.SYS_MMAP, unix.SYS_MPROTECT, unix.SYS_PRLIMIT64, stays, files, pythonBytes(snapshotBytes))
	text := string(cfg.Preload) + "\n" + strings.Replace(zygoteText, "@facts@", facts, 1) + "\n" + string(cfg.Script)
	s.firstOutOfMemory(false)
	s.dumpsNothing()
	s.do("setsid", unix.SYS_SETSID)
	s.do("umask", unix.SYS_UMASK, num(0o022))
	s.do("signals of children", unix.SYS_RT_SIGACTION, num(unix.SIGCHLD), s.bytes(make([]byte, 32)), num(0), num(8))
	s.mount("run", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=1m,nr_inodes=16")
	s.do("mkdir "+programPlace, unix.SYS_MKDIRAT, num(unix.AT_FDCWD), s.str(programPlace), num(0o755))
	s.file(path, text)
	s.mount("", "/run", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	s.do("chdir /", unix.SYS_CHDIR, s.str("/"))
	for c := range lastCap + 1 {
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
	core := binary.LittleEndian.AppendUint64(nil, coreBytes)
	s.do("limit core", unix.SYS_PRLIMIT64, num(0), num(unix.RLIMIT_CORE), s.bytes(append(core, core...)), num(0))
	soft := append(slices.Clone(limit), binary.LittleEndian.AppendUint64(nil, uint64(hardLimit(unix.RLIMIT_NOFILE)))...)
	s.do("limit nofile", unix.SYS_PRLIMIT64, num(0), num(unix.RLIMIT_NOFILE), s.bytes(soft), num(0))
	for _, fd := range []int{1, 2} {
		s.do("streams", unix.SYS_DUP3, passed(0), num(fd), num(0))
	}
	s.do("close the rest", unix.SYS_CLOSE_RANGE, num(4), num(uint64(^uint32(0))), num(unix.CLOSE_RANGE_CLOEXEC))
	s.do("keep the socket", unix.SYS_FCNTL, num(controlSocket), num(unix.F_SETFD), num(0))
	s.seccomp(filter)
	s.do("execute "+cfg.Argv[0], unix.SYS_EXECVE, s.str(cfg.Argv[0]), s.strings(cfg.Argv), s.strings(cfg.Env))
	return s, nil
}

// pythonBytes returns a bytes literal of Python.
func pythonBytes(data []byte) string {
	text := make([]byte, 0, 4*len(data)+3)
	text = append(text, `b"`...)
	for _, c := range data {
		text = fmt.Appendf(text, `\x%02x`, c)
	}
	return string(append(text, '"'))
}

// strings is a list of strings as execve takes it.
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

// childWalls puts the walls of a sandbox around a fork: the same as wallScript
// around init, which the fork does not inherit from. Its descriptors are init's
// pidfd, the fork's socket, the sandbox's Landlock ruleset and the ways into its
// control group.
func childWalls(p plan) (*script, probes) {
	s := &script{}
	zero := s.str("0")
	for i := range p.tasks {
		s.do("enter cgroup", unix.SYS_WRITE, passed(3+i), zero, num(1))
	}
	const all = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	s.do("enter the sandbox", unix.SYS_SETNS, passed(0), num(all&^p.without))
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
		s.seccomp(p.filter)
	}
	pr.vsock = s.probe("look: vsock", unix.SYS_SOCKET, num(unix.AF_VSOCK), num(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), num(0))
	pr.setns = s.probe("look: setns", unix.SYS_SETNS, none, num(0))
	return s, pr
}

// maxPlans is how many scripts an interpreter keeps.
const maxPlans = 32

// walls tells the interpreter the script of a kind of fork, once.
func (z *Zygote) wallsLocked(size Size, tasks int) (*childScript, error) {
	size.WorkBytes, size.WorkInodes, size.TempBytes = 0, 0, 0 // no limits of a process
	key := childPlan{size, tasks}
	if have := z.plans[key]; have != nil {
		return have, nil
	}
	j := z.jail
	s, pr := childWalls(plan{size: size, root: j.cfg.Mode == ModeRoot, tasks: tasks, abi: j.abi, filter: j.cfg.Filter, off: j.cfg.off, without: j.cfg.without})
	number := uint32(len(z.plans))
	if number >= maxPlans { // in the place of one that is known
		for old, cs := range z.plans {
			number = cs.number
			delete(z.plans, old)
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
	have := &childScript{number, pr}
	z.plans[key] = have
	return have, nil
}

// askLocked sends a request and takes the answer to it.
func (z *Zygote) askLocked(packet []byte, fds ...int) error {
	if z.control < 0 || z.broken.Load() { // its answer would be that to somebody else's question
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

// Broken reports that the zygote has to be given up: it has ended, or a fork of
// it was not what it had to be.
func (z *Zygote) Broken() bool { return z.broken.Load() }

// ErrNotForked tells that a fork was refused, and that nothing was made.
var ErrNotForked = errors.New("not forked")

// Close ends the interpreter. What was forked from it lives on. It may be called
// more than once.
func (z *Zygote) Close() {
	z.once.Do(func() {
		z.kill() // whoever asks it now gets an end
		z.mu.Lock()
		defer z.mu.Unlock()
		closeAll(z.control)
		z.control = -1
		if z.pidfd >= 0 { // which nobody else changes
			_ = waitPidfd(z.pidfd, answerLimit)
		}
		z.life.Lock()
		defer z.life.Unlock()
		closeAll(z.pidfd)
		z.pidfd = -1
		for _, s := range z.snapshots {
			s.Close()
		}
		clear(z.snapshots)
	})
}

// kill ends the interpreter, and gives nothing back. It waits for nobody who asks.
func (z *Zygote) kill() {
	z.life.Lock()
	defer z.life.Unlock()
	if z.pidfd >= 0 {
		_ = unix.PidfdSendSignal(z.pidfd, unix.SIGKILL, nil, 0)
	}
}

// PID is the interpreter's process number on the host.
func (z *Zygote) PID() int {
	z.life.Lock()
	defer z.life.Unlock()
	n, _ := hostPID(z.pidfd)
	return n
}
