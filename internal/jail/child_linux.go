package jail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
)

// Child is a fork of a zygote in a sandbox. It is behind the sandbox's walls, is a
// child of the sandbox's init, and waits for its program. The caller calls Begin or
// Drop once, and nothing after that.
type Child struct {
	slot    *Slot
	zygote  *Zygote
	loaded  bool // package code may have run in it
	control int
	pid     uint32 // process id in the sandbox
	host    int    // process id on the host
	options int    // ZygoteConfig.Options
}

// Fork makes a fork in a sandbox and checks it. The fork must have every required
// wall, and the namespaces and cgroups of the sandbox's init. If it does not, Fork
// kills it and fails. On ErrNotForked no process of the fork is in the sandbox. After
// any other error the caller must discard the sandbox. ways are descriptors of the
// sandbox's cgroup v1 "tasks" files, SlotConfig.Ways of them; the caller closes them.
//
// ahead says that no request waits for the fork yet. The fork then copies the pages that
// its program will write before it answers, and the program runs faster.
func (z *Zygote) Fork(s *Slot, ways []int, ahead bool) (*Child, error) {
	early := uint32(0)
	if ahead {
		early = 1
	}
	if s.jail != z.jail || s.rules < 0 || z.broken.Load() { // a broken zygote may still send answers to earlier requests
		return nil, ErrNotForked
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotForked, err)
	}
	if !s.beginFork() {
		closeAll(ours, theirs)
		return nil, fmt.Errorf("%w: %w", ErrNotForked, ErrEnded)
	}
	defer s.endFork()
	c := &Child{slot: s, zygote: z, control: ours, options: z.options}
	_ = hearFor(ours, forkLimit) // instead of answerLimit
	z.mu.Lock()
	cs, err := z.wallsLocked(s.size, len(ways))
	if err == nil { // the answer comes when the process between the zygote and the fork has ended
		err = z.askLocked(words('F', cs.number, early), append([]int{s.pidfd, theirs, s.rules}, ways...)...)
	}
	z.mu.Unlock()
	closeAll(theirs)
	if err == nil {
		s.mu.Lock()
		s.sockets = s.sockets || !s.jail.cfg.Notices
		s.mu.Unlock()
		if err = c.ready(cs.probes); err != nil {
			if waitPidfd(s.pidfd, 500*time.Millisecond) != nil { // the fork failed although init lives. If the sandbox was killed, the fork may end shortly before init
				z.broken.Store(true)
			}
			err = fmt.Errorf("fork: %w", err)
		}
	}
	if err == nil {
		return c, nil
	}
	defer closeAll(ours)
	if z.broken.Load() { // the zygote may still hold the descriptors that it was sent
		z.kill()
	}
	if !c.nobody() {
		z.broken.Store(true)
		z.kill()
		if !c.nobody() {
			return nil, err
		}
	}
	if !errors.Is(err, ErrNotForked) {
		err = fmt.Errorf("%w: %w", ErrNotForked, err)
	}
	return nil, err
}

// bear records a fork until init reports its end. Until then no report that was on its way says that init is alone.
func (s *Slot) bear(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forks == nil {
		s.forks = map[uint32]bool{}
	}
	s.forks[pid] = true
}

// beginFork says that init may soon have a child that it did not start. It reports false if the sandbox has ended.
func (s *Slot) beginFork() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return false
	}
	s.forking++
	s.alone, s.ran = false, true
	return true
}

func (s *Slot) endFork() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forking--
}

// nobody ends the fork and reports whether no process of it is left. It shuts the socket
// down, so that the fork and the intermediate process of the double fork exit. Each of them
// holds the other end of the socket for its whole life, so the function waits until that end is
// closed.
func (c *Child) nobody() bool {
	_ = unix.Shutdown(c.control, unix.SHUT_WR)
	if hearFor(c.control, time.Second) != nil {
		return false
	}
	var b [64]byte
	for range 4 {
		p, fds, err := receive(c.control, b[:])
		closeAll(fds...)
		if err == nil && len(p) == 0 || errors.Is(err, unix.ECONNRESET) {
			return true
		}
		if err != nil {
			return false
		}
	}
	return false
}

// ready waits until the fork reports its walls, and checks them. It passes the listener of the
// fork's filter on to init.
func (c *Child) ready(pr probes) error {
	var b [64]byte
	answer, fds, err := receive(c.control, b[:])
	defer closeAll(fds...)
	switch {
	case err != nil:
		return err
	case word(answer, 0) == 'E':
		return unix.Errno(word(answer, 1))
	case word(answer, 0) != 'R' || len(fds) != 1+c.slot.jail.listeners():
		return errors.New("the fork ended before its walls were complete")
	}
	c.pid = word(answer, 1)
	c.slot.bear(c.pid)
	var results []int32
	for i := range (len(answer) - 8) / 4 {
		results = append(results, int32(word(answer, 2+i)))
	}
	if c.host, err = hostPID(fds[0]); err != nil {
		return err
	}
	s := c.slot
	s.mu.Lock()
	lowered := s.lowered
	s.mu.Unlock()
	if err = lowered.set(c.host); err != nil {
		return err
	}
	init, err := s.lookAtInit(LookHold)
	if err == nil {
		init, err = s.withLimits(init)
	}
	if err != nil {
		return err
	}
	fork, err := s.look(c.host, fds[0], results, pr, init)
	if err != nil {
		return err
	}
	walls := s.named(fork.walls)
	if len(fds) == 2 {
		if err := s.conn.send(words('L'), fds[1]); err != nil {
			return fmt.Errorf("hand over the fork's listener: %w", err)
		}
	}
	for _, w := range s.jail.Required() {
		if w == sandboxmcp.WallNoNetwork && (slices.Contains(walls, sandboxmcp.WallTold) || slices.Contains(walls, sandboxmcp.WallEgress)) {
			continue
		}
		if !Stands(walls, w) {
			return fmt.Errorf("the wall %q is missing", w)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forked = append(s.forked, walls)
	return nil
}

// HostPID returns the fork's process id on the host.
func (c *Child) HostPID() int { return c.host }

// Begin has the fork run a program. cmd.Argv must be the zygote's Argv; only the
// arguments after the script may differ. On error nothing was run, and the fork ends.
func (c *Child) Begin(cmd Command) (*Proc, error) {
	defer c.Release() // if nothing was sent, the fork reads end of file and exits
	if len(cmd.Argv)+len(cmd.Env) > maxStrings {
		return nil, ErrTooLarge
	}
	if err := cmd.check(); err != nil {
		return nil, err
	}
	m := make([]byte, 0, 4096)
	put := func(v string) { m = append(append(m, v...), 0) }
	put("S")
	put(strconv.Itoa(c.options))
	put(strconv.Itoa(len(cmd.Argv)))
	put(cmd.Dir)
	for _, v := range slices.Concat(cmd.Argv, cmd.Env) {
		put(v)
	}
	if len(m) >= 200<<10 {
		return nil, ErrTooLarge
	}
	p, tag, err := c.register()
	if err != nil {
		return nil, err
	}
	if err = send(c.control, m, cmd.Files...); err != nil {
		c.forget(tag)
		return nil, fmt.Errorf("begin in a fork: %w", err)
	}
	return p, nil
}

// register adds the fork to the programs whose end init reports.
func (c *Child) register() (*Proc, uint32, error) {
	p := &Proc{slot: c.slot, pid: c.pid, up: make(chan struct{}), done: make(chan struct{})}
	close(p.up)
	s := c.slot
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return nil, 0, ErrEnded
	}
	s.tag++
	s.starting[s.tag], s.running[c.pid] = p, p
	s.alone = false
	return p, s.tag, nil
}

// Drop ends the fork and returns when it is gone. If package code may have run in the
// fork, Drop kills every other process of the sandbox, too.
func (c *Child) Drop(ctx context.Context) error {
	if c.loaded { // such code may have started processes, and may ignore the end of file
		c.Release()
		limited, cancel := context.WithTimeout(ctx, forkLimit)
		defer cancel()
		return c.slot.Clear(limited)
	}
	p, tag, err := c.register()
	ended := err == nil && c.nobody()
	c.Release()
	if err != nil {
		return err
	}
	if !ended {
		return errors.New("the fork does not end")
	}
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C: // init reported its end before register
		c.forget(tag)
	}
	return nil
}

// forget undoes register.
func (c *Child) forget(tag uint32) {
	c.slot.mu.Lock()
	defer c.slot.mu.Unlock()
	delete(c.slot.starting, tag)
	delete(c.slot.running, c.pid)
}

// Release closes the server's end of the fork's socket. The fork exits, unless Begin has
// started a program in it.
func (c *Child) Release() {
	closeAll(c.control)
	c.control = -1
}
