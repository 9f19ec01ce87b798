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

// SlotConfig is what one sandbox gets.
type SlotConfig struct {
	Size     Size
	Ways     int                   // how many descriptors Enter returns; 0: there is no Enter
	Enter    func() ([]int, error) // makes the cgroup while the walls go up, and returns its v1 "tasks" files, opened for writing
	Cgroup   int                   // cgroup v2 directory to be born into; 0: none
	WantProc bool                  // for a server that has to watch memory itself
	Plain    *Place
	Effort   Effort // bounds the server's time for init's messages; nil: no bound
}

// Effort bounds the server's time for one sandbox.
type Effort interface {
	// Pace is called after each process that has ended, and may rest.
	Pace()

	// Free suspends the bound, and ends a rest, until done is called.
	Free() (done func())
}

type noEffort struct{}

func (noEffort) Pace()               {}
func (noEffort) Free() (done func()) { return func() {} }

// Place is where a sandbox of ModePlain lives on the host.
type Place struct {
	UID                 int // to become; -1: stay
	Work, Temp, Program string
	Readable            []string
}

// Slot is a sandbox: walls around an init that starts programs on request. Its
// methods may be called concurrently.
type Slot struct {
	jail    *Jail
	conn    *conn
	pidOnce sync.Once
	pid     int    // of init, on the host; see PID
	pidfd   int    // of init
	uid     int    // that code has, on the host
	own     uint32 // uid within the jail's block; 0: it is not from there
	tasks   int    // what RLIMIT_NPROC has to be
	results []int32
	probes  probes
	size    Size
	effort  Effort
	rules   int    // its Landlock ruleset; -1: none
	network int    // its network namespace, when that may be used again; else -1
	Dirs    [5]int // descriptors of its own places, see DirWork; -1 when absent

	mu       sync.Mutex
	tag      uint32
	starting map[uint32]*Proc
	running  map[uint32]*Proc
	user     time.Duration // CPU of everything that has ended
	clearing map[uint32]chan struct{}
	dead     bool          // init has ended, or nothing is to be started any more
	alone    bool          // init has said that no process is left
	sockets  bool          // one of the network was made, or may have been
	egress   bool          // sockets of the server's stand in it, or may
	forked   [][]string    // walls of each fork of a zygote in it
	gone     chan struct{} // closed when init's socket ended
	killOnce sync.Once
	killErr  error
}

// makeHead is struct make of init.c.
const makeHead = 32

const (
	modeGroups     = 1
	modePlain      = 2
	modeHaveNet    = 4
	modeWantNet    = 8
	modeIntoCgroup = 16
	modeOnce       = 32
)

const slotNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// Turn is the right to make one sandbox. Its network namespace, the dearest
// part, is being made from the moment it is given, so that the holder can
// prepare the rest meanwhile.
type Turn struct {
	jail    *Jail
	spawner int
	network int // a namespace that was used before and is as new; else -1
	used    bool
}

// Turn waits until a spawner is free. The caller ends it by New or Cancel.
func (j *Jail) Turn() (*Turn, error) {
	select {
	case w := <-j.spawners:
		network, kept := j.networks.Take()
		if !kept {
			network = -1
		}
		if !kept && j.cfg.Mode != ModePlain {
			_ = send(w, words('N')) // when that fails, so will New
		}
		return &Turn{jail: j, spawner: w, network: network}, nil
	case <-j.done:
		return nil, errors.New("the jail has ended")
	}
}

// Cancel gives the turn back. After New it does nothing.
func (t *Turn) Cancel() {
	if !t.used {
		t.used = true
		t.jail.keep(t.network)
		t.jail.giveBack(t.spawner)
	}
}

// giveBack lets the next one have a spawner.
func (j *Jail) giveBack(spawner int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.gone { // nobody takes it back any more
		closeAll(spawner)
		return
	}
	j.spawners <- spawner // has room for every spawner
}

// New makes a sandbox. When it fails nothing of it is left.
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
		jail: j, pidfd: -1, rules: -1, size: cfg.Size, network: t.network, effort: cfg.Effort, probes: enc.probes, tasks: cfg.Size.MaxTasks + 1, Dirs: [5]int{-1, -1, -1, -1, -1},
		starting: map[uint32]*Proc{}, running: map[uint32]*Proc{}, clearing: map[uint32]chan struct{}{}, gone: make(chan struct{}),
	}
	t.network = -1 // from here on it is the sandbox's
	packet, fds := j.request(s, cfg, enc, theirs)
	err = s.spawn(t.spawner, packet, fds, func() error { return enter(ours, cfg) })
	t.Cancel() // the next can be made while this one's walls go up
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
		closeAll(ours, s.network, s.rules)
		closeAll(s.Dirs[:]...)
		j.giveID(s.own)
		return nil, fmt.Errorf("make sandbox: %w", err)
	}
	go s.read()
	return s, nil
}

// takeID finds a user id of the block that no live sandbox has, but for when
// there are as many of those.
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

// encoded returns the packet for sandboxes of this kind, made once.
func (j *Jail) encoded(cfg SlotConfig) (*encoded, error) {
	key := plan0{cfg.Size, cfg.Ways, cfg.WantProc}
	if cfg.Plain == nil {
		j.mu.Lock()
		enc := j.scripts[key]
		j.mu.Unlock()
		if enc != nil {
			return enc, nil
		}
	}
	p := plan{size: cfg.Size, root: j.cfg.Mode == ModeRoot, tasks: cfg.Ways, abi: j.abi, filter: j.cfg.Filter, wantProc: cfg.WantProc, sockets: j.networks != nil, off: j.cfg.off}
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

// request fills in the head of a packet for a spawner.
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

// enter has the cgroup made and sends init the way in.
func enter(control int, cfg SlotConfig) error {
	if cfg.Ways == 0 {
		return nil
	}
	tasks, err := cfg.Enter()
	if err != nil {
		return err
	}
	if len(tasks) != cfg.Ways {
		return fmt.Errorf("%d ways into the cgroup, not %d", len(tasks), cfg.Ways)
	}
	return send(control, words('C', 0), tasks...)
}

// spawn has a spawner clone the sandbox, and does something else meanwhile.
func (s *Slot) spawn(w int, packet []byte, fds []int, meanwhile func() error) error {
	if err := send(w, packet, fds...); err != nil {
		return fmt.Errorf("ask spawner: %w", err)
	}
	other := meanwhile()
	var b [64]byte
	answer, got, err := receive(w, b[:])
	switch {
	case err != nil: // what it says later would be taken for another sandbox's: the jail is thrown away
		s.jail.abandon()
		return fmt.Errorf("spawner: %w", err)
	case len(answer) == 0:
		return errors.New("the spawner has ended")
	case word(answer, 0) != 'S' || len(got) < 1:
		closeAll(got...)
		return fmt.Errorf("clone: %w", unix.Errno(word(answer, 1)))
	}
	s.pidfd = got[0]
	if len(got) == 2 && s.network < 0 {
		s.network = got[1]
		got = got[:1]
	}
	closeAll(got[1:]...)
	return other
}

// ready waits for init's word that every wall stands.
func (s *Slot) ready(fd int, sc *script) error {
	var b [256]byte
	answer, fds, err := receive(fd, b[:])
	switch {
	case err != nil:
		return fmt.Errorf("init: %w", err)
	case len(answer) == 0:
		return errors.New("init ended before its walls stood")
	case word(answer, 0) == 'E':
		closeAll(fds...)
		return sc.failure(word(answer, 1), word(answer, 2))
	}
	if i := s.probes.ruleset; i >= 0 && i < len(fds) {
		s.rules = fds[i]
		fds = slices.Delete(fds, i, i+1)
	}
	copy(s.Dirs[:], fds)
	for i := range int(word(answer, 1)) {
		s.results = append(s.results, int32(word(answer, 2+i)))
	}
	// where init does not hear of sockets, its silence says nothing
	i := s.probes.sockets
	s.sockets = i < 0 || i >= len(s.results) || s.results[i] < 0
	return nil
}

// hostPID reads the number of a process that we hold a pidfd of.
func hostPID(pidfd int) (int, error) {
	b, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(b), "Pid:")
	if !ok {
		return 0, errors.New("no Pid in fdinfo")
	}
	line, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(strings.TrimSpace(line))
}

// UID is the host user that code in the sandbox has.
func (s *Slot) UID() int { return s.uid }

// Gone is closed when the sandbox's init has ended.
func (s *Slot) Gone() <-chan struct{} { return s.gone }

// Ended reports whether init has, to the kernel; Gone is closed a moment later.
// It may not be called after Close.
func (s *Slot) Ended() bool { return ended(s.pidfd) }

// InBlock reports whether the kernel maps the sandbox's user into the jail's
// block of host ids.
func (s *Slot) InBlock() bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID()) + "/uid_map")
	f := strings.Fields(string(b))
	if err != nil || len(f) != 3 || f[2] != "1" {
		return false
	}
	host, err := strconv.Atoi(f[1])
	return err == nil && host > s.jail.cfg.FirstUID && host < s.jail.cfg.FirstUID+idsPerBlock
}

// PID is init's process number on the host; 0 when it has ended.
func (s *Slot) PID() int {
	s.pidOnce.Do(func() { s.pid, _ = hostPID(s.pidfd) })
	return s.pid
}

// Alone reports whether init has said that it is the only process left.
func (s *Slot) Alone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alone
}

// Kill ends every program in the sandbox for good and returns when none lives.
// Where init has told that none is left, that is at once: init itself, and with
// it the namespaces, ends in Close, when nobody waits.
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

// end ends init, and with it everything in the sandbox.
func (s *Slot) end() error {
	s.killOnce.Do(func() {
		s.effort.Free()
		if s.jail.cfg.Mode == ModePlain { // no pid namespace: init has to end the others itself
			_ = s.conn.send(words('Q'))
			if waitPidfd(s.pidfd, time.Second) == nil {
				return
			}
		}
		_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0)
		s.killErr = waitPidfd(s.pidfd, 5*time.Second)
	})
	return s.killErr
}

// waitPidfd waits until the process has ended, which for a pid namespace's init
// is when nothing is left in it.
func waitPidfd(fd int, limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		left := time.Until(end)
		if left <= 0 {
			return errors.New("processes do not end")
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

// Close kills and gives back all descriptors. It may be called once.
func (s *Slot) Close() error {
	err := s.end()
	s.conn.close()
	<-s.gone
	closeAll(s.Dirs[:]...)
	closeAll(s.pidfd, s.rules)
	if err == nil {
		s.jail.giveID(s.own)
	}
	s.mu.Lock()
	untouched := err == nil && !s.sockets
	s.mu.Unlock()
	if untouched && s.jail.unused(s.network) {
		s.jail.keep(s.network)
	} else {
		closeAll(s.network)
	}
	return err
}

// unused has a spawner look whether no socket lives in a network namespace. One
// can outlive all processes for a moment, on its way between two others.
func (j *Jail) unused(network int) bool {
	if network < 0 {
		return false
	}
	select {
	case w := <-j.spawners:
		defer j.giveBack(w)
		if send(w, words('C'), network) != nil {
			return false
		}
		var b [16]byte
		answer, fds, err := receive(w, b[:])
		closeAll(fds...)
		return err == nil && word(answer, 0) == 'C' && word(answer, 1) == 1
	case <-j.done:
		return false
	}
}

// keep puts a network namespace away for the next sandbox. Only sockets can
// change one from a sandbox, which has no rights in the user namespace that owns
// it: where none of the network was made and none at all is left, it is as the
// kernel made it.
func (j *Jail) keep(network int) {
	if network >= 0 && !j.networks.Put(network) {
		closeAll(network)
	}
}
