package jail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// SlotConfig describes one sandbox.
type SlotConfig struct {
	Size     Size
	Ways     int                   // number of descriptors that Enter returns; 0: Enter is not called
	Enter    func() ([]int, error) // makes the cgroup while init builds the walls; returns its v1 "tasks" files, opened for writing; New does not close them
	Cgroup   int                   // directory of the cgroup v2 group that init starts in; 0: none
	Terminal bool                  // mount a devpts of the sandbox's own; not in ModePlain
	WantProc bool                  // open /dev/shm and /proc of the sandbox, for a server that watches memory itself
	Plain    *Place                // ModePlain only
	Apart    bool                  // it does not see Config.Shared
	Effort   Effort                // bounds the server's time for init's messages; nil: no bound
}

// Effort bounds the server's time for one sandbox.
type Effort interface {
	// Pace is called after each process that has ended. It may sleep.
	Pace()

	// Free suspends the bound until done is called. It also wakes a sleeping Pace.
	Free() (done func())
}

type noEffort struct{}

func (noEffort) Pace()               {}
func (noEffort) Free() (done func()) { return func() {} }

// Place holds the host directories of a sandbox of ModePlain.
type Place struct {
	UID                 int // user id to switch to; -1: keep the server's
	Work, Temp, Program string
	Readable            []string // further files and directories that it may read
}

// Slot is a sandbox: an init behind walls that starts programs on request. Its
// methods may be called concurrently, except Close.
type Slot struct {
	jail    *Jail
	conn    *conn
	pidOnce sync.Once
	pid     int    // process id of init on the host; see PID
	pidfd   int    // pidfd of init
	uid     int    // host user id of the code
	own     uint32 // uid counted from Config.FirstUID; 0: not from the block
	results []int32
	probes  probes
	size    Size
	effort  Effort
	ptmx    int    // descriptor of the sandbox's /dev/pts/ptmx, opened with O_PATH; -1: none
	rules   int    // descriptor of the Landlock ruleset; -1: none
	network int    // descriptor of the network namespace, if a later sandbox may reuse it; else -1
	doubt   bool   // network may have a socket, see keptNetwork
	Dirs    [5]int // descriptors of the sandbox's directories, see DirWork; -1: absent

	mu       sync.Mutex
	tag      uint32
	starting map[uint32]*Proc
	running  map[uint32]*Proc
	user     time.Duration // CPU of everything that has ended
	answers  map[uint32]chan struct{}
	dead     bool            // init has ended, or no program may be started any more
	alone    bool            // no other process than init is left, as init has reported, or none was started yet; not in containers
	forking  int             // forks that are being made, which init does not know
	forks    map[uint32]bool // process ids in the sandbox of forks whose end init has not reported
	ran      bool            // a program was started or a fork was made
	sockets  bool            // a program may have made a network socket
	asks     bool            // init has asked for a grant of epoll watches since the last one
	asked    bool            // init has ever asked
	onAsk    func()          // called when init asks; see OnWatches
	prepare  func()          // called before a program makes the first; nil: nothing
	told     bool            // the server may have sockets in the network namespace that refuse everything
	egress   bool            // the server may have sockets in the network namespace that lead out
	forked   [][]string      // walls of each zygote fork in this sandbox
	lowered  Lowered         // see Lower
	seen     *look           // the last look at init; nil: it was dropped
	changes  int             // how often stale was called
	gone     chan struct{}   // closed at end of file on init's socket
	killOnce sync.Once
	killErr  error

	releasing sync.Mutex // held while memory of killed processes is released
	released  bool       // init has ended, and nothing may be released any more; guarded by releasing
}

// makeHead is the size of struct make of init.c.
const makeHead = 32

const (
	modeGroups     = 1
	modePlain      = 2
	modeHaveNet    = 4
	modeWantNet    = 8
	modeIntoCgroup = 16
	modeOnce       = 32
	modeCheckNet   = 128
)

const slotNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// Turn reserves a spawner for one sandbox. The spawner starts at once to make the
// network namespace, the slowest part, while the caller prepares the rest.
type Turn struct {
	jail    *Jail
	spawner int
	network keptNetwork // its descriptor is -1: the spawner makes a new one
	used    bool
}

// keptNetwork is a network namespace of a sandbox that has ended.
type keptNetwork struct {
	fd    int
	doubt bool // a program ran in it, so a Unix socket may be left: one in flight between two others can outlive all processes for a moment
}

// Turn waits until a spawner is free. The caller calls New or Cancel on the result.
func (j *Jail) Turn() (*Turn, error) {
	select {
	case w := <-j.spawners:
		network, kept := j.networks.Take(struct{}{}, nil)
		if !kept {
			network.fd = -1
		}
		if !kept && j.cfg.Mode != ModePlain {
			_ = send(w, words('N')) // an error shows again in New
		}
		return &Turn{jail: j, spawner: w, network: network}, nil
	case <-j.done:
		return nil, errors.New("the jail has ended")
	}
}

// Cancel gives the spawner back. After New it does nothing.
func (t *Turn) Cancel() {
	if !t.used {
		t.used = true
		t.jail.keep(t.network)
		t.jail.giveBack(t.spawner)
	}
}

// giveBack makes a spawner available to the next Turn.
func (j *Jail) giveBack(spawner int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.gone { // Close has emptied the channel
		closeAll(spawner)
		return
	}
	j.spawners <- spawner // never blocks: the channel holds every spawner
}

// New makes a sandbox. On error it leaves nothing behind. The caller closes the
// sandbox.
func (t *Turn) New(cfg SlotConfig) (*Slot, error) {
	defer t.Cancel()
	j := t.jail
	enc, err := j.encoded(cfg)
	if err != nil {
		return nil, err
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	if cfg.Effort == nil {
		cfg.Effort = noEffort{}
	}
	s := &Slot{
		jail: j, pidfd: -1, rules: -1, ptmx: -1, size: cfg.Size, network: t.network.fd, doubt: t.network.doubt, effort: cfg.Effort, probes: enc.probes, Dirs: [5]int{-1, -1, -1, -1, -1},
		starting: map[uint32]*Proc{}, running: map[uint32]*Proc{}, answers: map[uint32]chan struct{}{}, gone: make(chan struct{}),
	}
	t.network.fd = -1 // the sandbox owns it now
	packet, fds := j.request(s, cfg, enc, theirs)
	mount := -1
	if j.cfg.ownShared() && !cfg.Apart {
		if mount, err = j.shared.mount(s.uid); err == nil {
			fds = append(fds, mount)
		}
	}
	if err == nil {
		err = s.spawn(t.spawner, packet, fds, func() error { return enter(ours, cfg) })
	}
	closeAll(mount)
	t.Cancel() // the spawner can make the next sandbox while this init builds its walls
	closeAll(theirs)
	if err == nil {
		err = s.ready(ours, enc.script)
	}
	if err == nil {
		if s.conn, err = newConn(ours); err != nil {
			ours = -1
		}
	}
	if err != nil {
		if s.pidfd >= 0 {
			_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
			_ = waitPidfd(s.pidfd, 2*time.Second)
			closeAll(s.pidfd)
		}
		closeAll(ours, s.network, s.rules, s.ptmx)
		closeAll(s.Dirs[:]...)
		j.giveID(s.own)
		return nil, fmt.Errorf("make sandbox: %w", err)
	}
	s.alone = true
	go s.read()
	return s, nil
}

// takeID returns a user id of the block that no live sandbox uses. If all are in use, it
// returns one of them.
func (j *Jail) takeID() uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	for range idsPerBlock {
		j.next = j.next%(idsPerBlock-2) + 1
		if !j.ids[j.next] {
			break
		}
	}
	j.ids[j.next] = true
	return j.next
}

func (j *Jail) giveID(id uint32) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.ids, id)
}

// encoded returns the script of init and its packet, from the cache if possible.
func (j *Jail) encoded(cfg SlotConfig) (*encoded, error) {
	key := plan0{cfg.Size, cfg.Ways, cfg.WantProc, cfg.Terminal, cfg.Apart, haveLists("/proc")}
	if cfg.Plain == nil {
		j.mu.Lock()
		enc := j.scripts[key]
		j.mu.Unlock()
		if enc != nil {
			return enc, nil
		}
	}
	p := plan{size: cfg.Size, root: j.cfg.Mode == ModeRoot, tasks: cfg.Ways, abi: j.abi, filter: j.cfg.Filter, wantProc: cfg.WantProc, terminal: cfg.Terminal, notices: j.cfg.Notices, container: j.cfg.Mode == ModeContainer, off: j.cfg.off, shared: j.cfg.Shared, own: j.cfg.ownShared(), apart: cfg.Apart, lists: key.lists}
	if cfg.Plain != nil {
		p.plain = &plain{cfg.Plain.UID, cfg.Plain.Work, cfg.Plain.Temp, cfg.Plain.Program, cfg.Plain.Readable}
		p.root = cfg.Plain.UID >= 0
	}
	s, pr := wallScript(p)
	packet, err := s.encode(make([]byte, makeHead), 'B')
	if err != nil {
		return nil, err
	}
	enc := &encoded{s, pr, packet}
	if cfg.Plain == nil {
		j.mu.Lock()
		if len(j.scripts) > 64 {
			clear(j.scripts)
		}
		j.scripts[key] = enc
		j.mu.Unlock()
	}
	return enc, nil
}

// request returns the packet for a spawner, with its head filled in, and the
// descriptors that go with it.
func (j *Jail) request(s *Slot, cfg SlotConfig, enc *encoded, control int) ([]byte, []int) {
	packet := append([]byte(nil), enc.packet...)
	mode, flags, outer := uint32(0), slotNamespaces&^j.cfg.without, uint32(0)
	switch j.cfg.Mode {
	case ModeRoot:
		mode = modeGroups
		outer = j.takeID()
		s.own = outer
		s.uid = j.cfg.FirstUID + int(outer)
	case ModeUser:
		s.uid = os.Geteuid()
	case ModeContainer: // its sandboxes are adopted
	case ModePlain:
		mode, flags = modePlain, 0
		s.uid = cfg.Plain.UID
		if s.uid < 0 {
			s.uid = os.Geteuid()
		}
	}
	fds := []int{control}
	switch {
	case s.network >= 0:
		mode |= modeHaveNet
		if s.doubt {
			mode |= modeCheckNet
		}
		fds = append(fds, s.network)
	case j.networks != nil:
		mode |= modeWantNet
	}
	if cfg.Cgroup > 0 {
		mode |= modeIntoCgroup
		fds = append(fds, cfg.Cgroup)
	}
	le := binary.LittleEndian
	le.PutUint32(packet[0:], 'M')
	le.PutUint32(packet[4:], mode)
	le.PutUint64(packet[8:], flags)
	le.PutUint32(packet[16:], outer)
	le.PutUint32(packet[20:], InsideUID)
	le.PutUint32(packet[24:], makeHead)
	return packet, fds
}

// enter calls cfg.Enter and sends init the descriptors of the cgroup's "tasks" files.
func enter(control int, cfg SlotConfig) error {
	if cfg.Ways == 0 {
		return nil
	}
	tasks, err := cfg.Enter()
	if err != nil {
		return err
	}
	if len(tasks) != cfg.Ways {
		return fmt.Errorf("got %d descriptors of the cgroup, want %d", len(tasks), cfg.Ways)
	}
	return send(control, words('C', 0), tasks...)
}

// spawn asks spawner w to clone the sandbox, calls meanwhile, and then reads the
// spawner's answer.
func (s *Slot) spawn(w int, packet []byte, fds []int, meanwhile func() error) error {
	if err := send(w, packet, fds...); err != nil {
		return fmt.Errorf("ask spawner: %w", err)
	}
	other := meanwhile()
	var b [64]byte
	answer, got, err := receive(w, b[:])
	switch {
	case err != nil: // a late answer would be taken for the answer to the next request, so the jail is discarded
		s.jail.abandon()
		return fmt.Errorf("spawner: %w", err)
	case len(answer) == 0:
		return errors.New("the spawner has ended")
	case word(answer, 0) != 'S' || len(got) < 1:
		closeAll(got...)
		return fmt.Errorf("clone: %w", unix.Errno(word(answer, 1)))
	}
	s.pidfd = got[0]
	if len(got) == 2 { // a new network namespace
		closeAll(s.network)
		s.network = got[1]
		got = got[:1]
	}
	closeAll(got[1:]...)
	return other
}

// ready waits until init reports that its script is done.
func (s *Slot) ready(fd int, sc *script) error {
	var b [256]byte
	answer, fds, err := receive(fd, b[:])
	switch {
	case err != nil:
		return fmt.Errorf("init: %w", err)
	case len(answer) == 0:
		return errors.New("init ended before its walls were complete")
	case word(answer, 0) == 'E':
		closeAll(fds...)
		return sc.failure(word(answer, 1), word(answer, 2))
	}
	if i := s.probes.ruleset; i >= 0 && i < len(fds) {
		s.rules = fds[i]
		fds = slices.Delete(fds, i, i+1)
	}
	if i := s.probes.ptmx; i >= 0 && i < len(fds) { // it comes before the ruleset
		s.ptmx = fds[i]
		fds = slices.Delete(fds, i, i+1)
	}
	copy(s.Dirs[:], fds)
	for i := range int(word(answer, 1)) {
		s.results = append(s.results, int32(word(answer, 2+i)))
	}
	s.sockets = !s.jail.cfg.Notices // without notices assume that programs make sockets
	return nil
}

// hostPID returns the host's process id for a pidfd.
func hostPID(pidfd int) (int, error) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_PID}
	if unix.IoctlPidfdInfo(pidfd, &info) == nil && info.Pid != 0 { // since Linux 6.13
		return int(info.Pid), nil
	}
	fd, err := unix.Open("/proc/self/fdinfo/"+strconv.Itoa(pidfd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("find process: %w", err)
	}
	defer closeAll(fd)
	var b [1024]byte // the text has a few short lines
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return 0, fmt.Errorf("find process: %w", err)
	}
	_, rest, ok := strings.Cut(string(b[:n]), "Pid:")
	if !ok {
		return 0, errors.New("no Pid in fdinfo")
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}

// UID returns the host user id of code in the sandbox.
func (s *Slot) UID() int { return s.uid }

// Gone returns a channel that is closed when the sandbox's init has ended.
func (s *Slot) Gone() <-chan struct{} { return s.gone }

// Ended reports whether init has ended, as the kernel says. Gone is closed a moment
// later. Ended may not be called after Close.
func (s *Slot) Ended() bool { return ended(s.pidfd) }

// Lost reports whether init or the builder of the jail has ended, as the kernel says. It may not be called after Close.
func (s *Slot) Lost() bool {
	s.jail.mu.Lock()
	defer s.jail.mu.Unlock()
	return s.jail.gone || ended(s.pidfd, s.jail.pidfd)
}

// PID returns init's process id on the host. It is 0 if init had ended before the
// first call.
func (s *Slot) PID() int {
	s.pidOnce.Do(func() {
		n, _ := hostPID(s.pidfd)
		s.pid = max(n, 0) // the kernel says -1 of a process that has ended
	})
	return s.pid
}

// Alone reports whether no other process than init is left, as init has reported, or none was started yet. In a
// container that init has not reported, it is false.
func (s *Slot) Alone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alone
}

// Kill ends every program in the sandbox and returns when none is left. No program can be
// started afterwards. If Alone is true, Kill returns at
// once. Close then ends init and the namespaces, so that the request need not wait for
// that.
func (s *Slot) Kill() error {
	s.mu.Lock()
	alone := s.alone
	if alone {
		s.dead = true
	}
	s.mu.Unlock()
	if alone {
		return nil
	}
	return s.end()
}

// End ends init and with it every program. Unlike Kill, it also frees the sandbox's files if no program is left.
func (s *Slot) End() error { return s.end() }

// end kills init. Init kills the other processes first in ModePlain; otherwise the kernel does
// that when init ends.
func (s *Slot) end() error {
	s.killOnce.Do(func() {
		s.effort.Free()
		if s.jail.cfg.Mode == ModePlain { // no pid namespace: init has to kill the other processes
			_ = s.conn.send(words('Q'))
			if waitPidfd(s.pidfd, time.Second) == nil {
				return
			}
		}
		s.hurry()
		_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
		s.killErr = s.untilReleased(5 * time.Second)
	})
	return s.killErr
}

// highestRank is the nice value of the highest priority.
const highestRank = -20

// hurry gives init the highest priority. The kernel ends the programs of the sandbox when init runs
// after its kill. Without the priority, init may wait until each program has used its share of the
// processor. An ordinary user may not raise a priority; the call then changes nothing.
func (s *Slot) hurry() {
	if pid := s.PID(); pid > 0 && !s.Ended() {
		_ = unix.Setpriority(unix.PRIO_PROCESS, pid, highestRank)
	}
}

// waitPidfd waits until the process has ended, at most for limit. The init of a pid
// namespace ends only when no other process is left in it.
func waitPidfd(fd int, limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		left := time.Until(end)
		if left <= 0 {
			return errors.New("the process does not end")
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Close ends the sandbox and closes its descriptors. It may be called only once. If the kernel does not end
// all processes in time, Close fails, and the caller calls Outlive.
func (s *Slot) Close() error {
	err := s.end()
	s.conn.close()
	<-s.gone
	closeAll(s.Dirs[:]...)
	closeAll(s.rules, s.ptmx)
	if err == nil {
		closeAll(s.pidfd)
		s.jail.giveID(s.own)
	}
	s.mu.Lock()
	untouched := err == nil && !s.sockets
	empty := !s.ran && !s.told && !s.egress // then nothing could make a socket
	s.mu.Unlock()
	if untouched {
		s.jail.keep(keptNetwork{s.network, !empty})
	} else {
		closeAll(s.network)
	}
	return err
}

// Outlive calls over when no process is left of a sandbox that Close could not end. Until then no other
// sandbox gets its user id.
func (s *Slot) Outlive(over func()) {
	go func() {
		untilEnded(func() error { return s.untilReleased(time.Minute) })
		closeAll(s.pidfd)
		s.jail.giveID(s.own)
		over()
	}()
}

// untilEnded calls wait until it returns nil, without a limit. It rests after an error, because wait may
// fail at once, as when the kernel has no memory.
func untilEnded(wait func() error) {
	for wait() != nil {
		time.Sleep(outliveRest) //nolint:forbidigo // nothing ends this wait but the process
	}
}

const outliveRest = time.Second

// keep stores a network namespace for a later sandbox, or closes it. A sandbox has no
// capabilities in the user namespace that owns its network namespace, so it can change
// it only by sockets. If no network socket was made and no socket is left, the
// namespace is as new. Whether one is left, the spawner asks when it gives the namespace to a sandbox.
func (j *Jail) keep(n keptNetwork) {
	if n.fd >= 0 && !j.networks.Put(struct{}{}, n) {
		closeAll(n.fd)
	}
}
