package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Command is a program to start in a sandbox.
type Command struct {
	Argv, Env []string
	Dir       string
	Files     []int // become descriptors 0, 1, 2 …; the caller closes them
	Terminal  bool  // descriptor 0 is a terminal, which becomes the controlling one
	Executed  bool  // init does nothing until the program is executed; PID waits for that
}

// Proc is a program that was started in a sandbox.
type Proc struct {
	slot *Slot
	pid  uint32 // process id in the sandbox
	up   chan struct{}
	done chan struct{}
	exit Exit
	err  error
}

// Exit says how a program ended and what it used.
type Exit struct {
	Status unix.WaitStatus
	CPU    time.Duration
	MaxRSS int64 // bytes; the largest process among the program and the children that it waited for
	Killed bool  // the sandbox ended before the program, so Status is unknown
}

const (
	startHead  = 24 + 8*16 // size of struct start of init.c without its text
	maxStrings = 3900      // arguments and variables together; see start in init.c

	// flags of init's struct start
	startTerminal = 1
	startExecuted = 2
)

// ErrTooLarge means that arguments and environment do not fit into one packet.
var ErrTooLarge = errors.New("arguments and environment are too large")

// check refuses strings that the packet to init cannot carry: they are separated by NUL.
func (c Command) check() error {
	if len(c.Argv) == 0 {
		return errors.New("no program is named")
	}
	for _, v := range slices.Concat([]string{c.Dir}, c.Argv, c.Env) {
		if strings.IndexByte(v, 0) >= 0 {
			return errors.New("a NUL byte in an argument, a variable or the directory")
		}
	}
	return nil
}

// Start starts a program in the sandbox. It returns before the program is executed; if
// that fails, Exit returns the error.
func (s *Slot) Start(c Command) (*Proc, error) {
	if len(c.Argv)+len(c.Env) > maxStrings {
		return nil, ErrTooLarge
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	p := &Proc{slot: s, up: make(chan struct{}), done: make(chan struct{})}
	s.mu.Lock()
	if s.dead {
		s.mu.Unlock()
		return nil, ErrEnded
	}
	s.tag++
	tag := s.tag
	s.starting[tag] = p
	s.alone, s.ran = false, true
	s.mu.Unlock()

	m := make([]byte, startHead, 4096)
	le := binary.LittleEndian
	le.PutUint32(m[0:], 'S')
	le.PutUint32(m[4:], tag)
	le.PutUint32(m[8:], uint32(len(c.Argv)))
	le.PutUint32(m[12:], uint32(len(c.Env)))
	le.PutUint32(m[20:], c.flags())
	if s.uid == os.Geteuid() {
		le.PutUint32(m[16:], 1)
		le.PutUint64(m[24:], unix.RLIMIT_NOFILE)
		le.PutUint64(m[32:], ownFiles())
	}
	m = append(append(m, c.Dir...), 0)
	for _, a := range c.Argv {
		m = append(append(m, a...), 0)
	}
	for _, e := range c.Env {
		m = append(append(m, e...), 0)
	}
	err := ErrTooLarge
	s.heed()
	if len(m) < 200<<10 { // what fits into a socket's default buffer as one packet
		err = s.conn.send(m, c.Files...)
	}
	if err != nil {
		s.mu.Lock()
		delete(s.starting, tag)
		s.mu.Unlock()
		return nil, fmt.Errorf("ask init: %w", err)
	}
	return p, nil
}

// flags returns the flags of init's struct start.
func (c *Command) flags() (f uint32) {
	if c.Terminal {
		f |= startTerminal
	}
	if c.Executed {
		f |= startExecuted
	}
	return f
}

// Settle waits until init has forked every program that Start has asked for.
func (s *Slot) Settle(ctx context.Context) error {
	s.mu.Lock()
	var waiting []*Proc
	for _, p := range s.starting {
		if p.pid == 0 {
			waiting = append(waiting, p)
		}
	}
	s.mu.Unlock()
	for _, p := range waiting {
		select {
		case <-p.up:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Signal sends a signal to the program alone.
func (p *Proc) Signal(n int) error {
	if err := p.lives(); err != nil {
		return err
	}
	p.slot.heed()
	return p.slot.conn.send(words('K', p.pid, uint32(n)))
}

// SignalGroup sends a signal to the program and its process group. It returns when they have the signal, so that it does
// not disturb what the program is asked to do next.
func (p *Proc) SignalGroup(ctx context.Context, n int) error {
	if err := p.lives(); err != nil {
		return err
	}
	p.slot.heed()
	return p.slot.ask(ctx, 'K', uint32(-int(p.pid)), uint32(n))
}

// lives waits until the program is started, and fails if it has ended.
func (p *Proc) lives() error {
	<-p.up
	select {
	case <-p.done:
		return errors.New("the program has ended")
	default:
		return nil
	}
}

// heed lifts the bound on the server's time for init's messages, for the time heedFor.
// Otherwise init's socket could stay full with reports of ended processes, and init reads
// no request while it waits to send one.
func (s *Slot) heed() {
	if s.effort != nil {
		time.AfterFunc(heedFor, s.effort.Free())
	}
}

// heedFor is long enough to read all messages that init's socket holds.
const heedFor = 50 * time.Millisecond

// Signal sends a signal to a process by its id in the sandbox. Without a process of that id it
// does nothing.
func (s *Slot) Signal(pid, n int) error {
	if pid < 2 {
		return errors.New("no process to signal")
	}
	s.heed()
	return s.conn.send(words('K', uint32(pid), uint32(n)))
}

// SignalSoon is Signal for a caller that does not wait for the effect: it does not lift the bound on the server's time.
func (s *Slot) SignalSoon(pid, n int) error { return s.conn.send(words('K', uint32(pid), uint32(n))) }

// PID returns the program's process id in the sandbox. It waits until init has started the
// program; 0: it could not be started.
func (p *Proc) PID() int {
	<-p.up
	return int(p.pid)
}

// SignalAll sends a signal to every process in the sandbox but its init.
func (s *Slot) SignalAll(n int) error {
	return s.conn.send(words('K', ^uint32(0), uint32(n)))
}

// Heeds reports whether init has done what it was asked before. It waits for that at most for most.
func (s *Slot) Heeds(most time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), most) //nolint:forbidigo // the watch is nobody's call
	defer cancel()
	return s.ask(ctx, 'K', 1, 0) == nil // signal 0 does nothing
}

// Done returns a channel that is closed when the program has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Exit returns how the program ended, or an error if it could not be executed. It may
// be called only after Done is closed.
func (p *Proc) Exit() (Exit, error) { return p.exit, p.err }

// read handles init's packets until init ends.
func (s *Slot) read() {
	b := make([]byte, 256)
	for {
		n, fds, err := s.conn.receive(b)
		closeAll(fds...)
		if err != nil || n == 0 {
			break
		}
		if s.packet(b[:n]) {
			s.effort.Pace()
		}
	}
	s.mu.Lock()
	s.dead = true
	for _, p := range s.starting {
		if p.pid == 0 { // programs that have started are in s.running, too
			p.exit.Killed = true
			close(p.up)
			close(p.done)
		}
	}
	for _, p := range s.running {
		p.exit.Killed = true
		close(p.done)
	}
	clear(s.starting)
	clear(s.running)
	s.mu.Unlock()
	close(s.gone)
}

// packet handles a message of init. orphan reports that the message is only about the end
// of a process that the server did not start. A program can cause any number of these; init
// stops sending while its socket is full.
func (s *Slot) packet(b []byte) (orphan bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch word(b, 0) {
	case 'P':
		if p := s.starting[word(b, 1)]; p != nil && p.pid == 0 {
			p.pid = word(b, 2)
			s.running[p.pid] = p
			close(p.up)
		}
	case 'F':
		p := s.starting[word(b, 1)]
		if p == nil {
			return false
		}
		delete(s.starting, word(b, 1))
		p.err = fmt.Errorf("start program: %w", unix.Errno(word(b, 2)))
		if p.pid == 0 {
			close(p.up)
			close(p.done)
		}
	case 'N':
		s.sockets = true
		go s.allowSockets(s.prepare)
	case 'W':
		s.asks, s.asked = true, true
		if s.onAsk != nil {
			go s.onAsk()
		}
	case 'X':
		return s.ended(b)
	case 'A':
		if c := s.answers[word(b, 1)]; c != nil {
			delete(s.answers, word(b, 1))
			close(c)
		}
	}
	return false
}

// allowSockets has init let programs make network sockets, after prepare has returned.
func (s *Slot) allowSockets(prepare func()) {
	if prepare != nil {
		prepare()
	}
	_ = s.conn.send(words('N')) // on error init has ended
}

// Clear kills every process in the sandbox except init and returns when none is left.
// It may also kill programs that are started at the same time.
func (s *Slot) Clear(ctx context.Context) error {
	defer s.effort.Free()()
	over := make(chan struct{})
	defer close(over)
	go s.releaseUntil(over, false)
	return s.ask(ctx, 'C')
}

// ask sends a request to init and waits for the answer.
func (s *Slot) ask(ctx context.Context, kind uint32, args ...uint32) error {
	done := make(chan struct{})
	s.mu.Lock()
	if s.dead {
		s.mu.Unlock()
		return ErrEnded
	}
	s.tag++
	tag := s.tag
	s.answers[tag] = done
	s.mu.Unlock()
	if err := s.conn.send(words(slices.Concat([]uint32{kind}, args, []uint32{tag})...)); err != nil {
		return fmt.Errorf("ask init: %w", err)
	}
	select {
	case <-done:
		return nil
	case <-s.gone:
		return ErrEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrEnded means that the sandbox has ended, or that no program may be started in it
// any more. It is an fs.ErrClosed too.
var ErrEnded error = endedError{}

type endedError struct{}

func (endedError) Error() string { return "the sandbox has ended" }

func (endedError) Is(target error) bool { return target == fs.ErrClosed }

// Dead reports whether no program may be started in the sandbox any more.
func (s *Slot) Dead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

func (s *Slot) ended(b []byte) (orphan bool) {
	if len(b) < 40 {
		return false
	}
	delete(s.forks, word(b, 1))
	us := binary.LittleEndian.Uint64(b[16:]) + binary.LittleEndian.Uint64(b[24:])
	cpu := time.Duration(us) * time.Microsecond
	s.user += cpu
	p := s.running[word(b, 1)]
	if p != nil {
		delete(s.running, p.pid)
		for tag, q := range s.starting {
			if q == p {
				delete(s.starting, tag)
			}
		}
	}
	s.alone = word(b, 8) == 1 && len(s.starting) == len(s.running) && s.forking == 0 && len(s.forks) == 0 // init does not count programs that it has not forked yet
	if p == nil {
		return true
	}
	p.exit = Exit{Status: unix.WaitStatus(word(b, 2)), CPU: cpu, MaxRSS: int64(word(b, 3)) << 10}
	close(p.done)
	return false
}

// CPU returns the CPU time of all processes of the sandbox that have ended.
func (s *Slot) CPU() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.user
}
