package jail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Child is a fork of a zygote in a sandbox. It has the walls of the sandbox
// around it, is a child of the sandbox's init, and waits to be told what to run.
// It is used once, by Begin or Drop.
type Child struct {
	slot    *Slot
	zygote  *Zygote
	loaded  bool // package code may have run in it
	control int
	pid     uint32 // in the sandbox
	host    int
	options int
}

// Fork makes a fork in a sandbox, and looks at it: one that does not have every
// wall that is demanded, the sandbox's own namespaces and its control group is
// ended, and Fork fails. Where the error is ErrNotForked, nothing of a fork is in
// the sandbox; after any other it has to be given up. ways are the "tasks" files of the sandbox's control
// group, as many as it was made with.
//
// ahead says that nobody waits for it yet, so that what would slow it down later
// is done now.
func (z *Zygote) Fork(s *Slot, ways []int, ahead bool) (*Child, error) {
	early := uint32(0)
	if ahead {
		early = 1
	}
	if s.jail != z.jail || s.rules < 0 || z.broken.Load() { // a broken one may answer what it was asked before
		return nil, ErrNotForked
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotForked, err)
	}
	c := &Child{slot: s, zygote: z, control: ours, options: z.options}
	_ = hearFor(ours, forkLimit) // else it takes as long as anything may
	z.mu.Lock()
	cs, err := z.wallsLocked(s.size, len(ways))
	if err == nil {
		err = z.askLocked(words('F', cs.number, early), append([]int{s.pidfd, theirs, s.rules}, ways...)...)
	}
	z.mu.Unlock()
	closeAll(theirs)
	if err == nil {
		s.mu.Lock()
		s.sockets = true // its own filter does not tell init of them
		s.alone = false
		s.mu.Unlock()
		if err = c.ready(cs.probes); err != nil {
			if waitPidfd(s.pidfd, 100*time.Millisecond) != nil { // else its sandbox was ended, which ends a fork a little before init
				z.broken.Store(true)
			}
			err = fmt.Errorf("fork: %w", err)
		}
	}
	if err == nil {
		return c, nil
	}
	defer closeAll(ours)
	if z.broken.Load() { // and may be stopped, with what it was sent
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

// nobody waits until no process holds the other end of the fork's socket, which
// is when none that was made for it lives: it tells them to end, and each holds
// it from its beginning to its end.
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

// ready waits until the walls stand, and looks at them.
func (c *Child) ready(pr probes) error {
	var b [64]byte
	answer, fds, err := receive(c.control, b[:])
	defer closeAll(fds...)
	switch {
	case err != nil:
		return err
	case word(answer, 0) == 'E':
		return unix.Errno(word(answer, 1))
	case word(answer, 0) != 'R' || len(fds) != 1:
		return errors.New("it ended before its walls stood")
	}
	c.pid = word(answer, 1)
	var results []int32
	for i := range (len(answer) - 8) / 4 {
		results = append(results, int32(word(answer, 2+i)))
	}
	if c.host, err = hostPID(fds[0]); err != nil {
		return err
	}
	s := c.slot
	walls, err := s.observe(c.host, fds[0], results, pr)
	if err != nil {
		return err
	}
	for _, w := range s.jail.cfg.Mode.Required(s.jail.abi) {
		if w == WallNoNetwork && slices.Contains(walls, WallEgress) {
			continue
		}
		if !slices.Contains(walls, w) {
			return fmt.Errorf("the wall %q does not stand", w)
		}
	}
	if err := s.sameAsInit(c.host); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forked = append(s.forked, walls)
	return nil
}

// sameAsInit demands that a process is in init's namespaces and control groups,
// and has its ids, rights and limits.
func (s *Slot) sameAsInit(pid int) error {
	init, err := observe(s.PID())
	if err != nil {
		return err
	}
	defer closeAll(init.proc)
	other, err := observe(pid)
	if err != nil {
		return err
	}
	defer closeAll(other.proc)
	for _, name := range []string{"user", "mnt", "pid", "pid_for_children", "net", "ipc", "uts", "cgroup"} {
		want, wantErr := readlinkat(init.proc, "ns/"+name)
		if got, gotErr := readlinkat(other.proc, "ns/"+name); wantErr != nil || gotErr != nil || got != want {
			return fmt.Errorf("its %s namespace is another", name)
		}
	}
	want, err := init.read("cgroup")
	if err != nil {
		return err
	}
	text, err := other.read("cgroup")
	if err != nil || text != want {
		return errors.New("it is in another control group")
	}
	if want, err = init.read("status"); err != nil {
		return err
	}
	wanted := fields(want)
	if text, err = other.read("status"); err != nil {
		return err
	}
	got := fields(text)
	for _, name := range []string{"Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"} {
		if got[name] != wanted[name] {
			return fmt.Errorf("its %s is %s, not %s", name, got[name], wanted[name])
		}
	}
	if want, err = init.read("limits"); err != nil {
		return err
	}
	if text, err = other.read("limits"); err != nil {
		return err
	}
	if limitsButFiles(text) != limitsButFiles(want) {
		return errors.New("its limits are others")
	}
	return nil
}

// limitsButFiles leaves the number of descriptors out: where init has the server's
// own user, a program gets fewer.
func limitsButFiles(limits string) string {
	before, after, _ := strings.Cut(limits, "Max open files")
	_, after, _ = strings.Cut(after, "\n")
	return before + after
}

// HostPID is the fork's process number on the host.
func (c *Child) HostPID() int { return c.host }

// Begin has the fork run a program: Argv as it was said to be for the zygote, but
// for the script's arguments. It is an error when the fork has ended meanwhile;
// then nothing was run. After any error it ends.
func (c *Child) Begin(cmd Command) (*Proc, error) {
	defer c.Release() // where nothing was sent, that is what it hears
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

// register enters the fork among what init tells of.
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

// Drop ends the fork and returns when it is gone. If the fork has loaded a snapshot, Drop
// ends everything else in its sandbox, too.
func (c *Child) Drop(ctx context.Context) error {
	if c.loaded { // it may have started processes, and may not answer
		c.Release()
		limited, cancel := context.WithTimeout(ctx, forkLimit)
		defer cancel()
		return c.slot.Clear(limited)
	}
	p, tag, err := c.register()
	ended := err == nil && c.nobody() // it holds the other end for as long as it lives
	c.Release()
	if err != nil {
		return err
	}
	if !ended {
		return errors.New("a fork does not end")
	}
	t := time.NewTimer(100 * time.Millisecond)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C: // init had told of it before
		c.forget(tag)
	}
	return nil
}

// forget takes the fork from among what init tells of.
func (c *Child) forget(tag uint32) {
	c.slot.mu.Lock()
	defer c.slot.mu.Unlock()
	delete(c.slot.starting, tag)
	delete(c.slot.running, c.pid)
}

// Release gives back the descriptor of a fork, which ends unless it was told what to run.
func (c *Child) Release() {
	closeAll(c.control)
	c.control = -1
}
