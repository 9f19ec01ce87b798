package jail

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Command is a program to start in a slot.
type Command struct {
	Argv, Env []string
	Dir       string
	Files     []int // become descriptors 0, 1, 2 …; the caller keeps and closes its own
}

// Proc is a program that was started.
type Proc struct {
	slot *Slot
	pid  uint32 // inside the sandbox
	up   chan struct{}
	done chan struct{}
	exit Exit
	err  error
}

// Exit is how a program ended and what it took.
type Exit struct {
	Status unix.WaitStatus
	CPU    time.Duration
	MaxRSS int64 // bytes, of the largest process among it and the children that it waited for
	Killed bool  // its sandbox was ended under it: Status is unknown
}

const (
	startHead  = 24 + 8*16 // struct start of init.c without its text
	maxStrings = 3900
)

// ErrTooLarge tells that arguments and environment do not fit into one packet.
var ErrTooLarge = errors.New("arguments and environment are too large")

// check refuses what the packet to init cannot carry: a NUL would end one string
// there and begin the next.
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

// Start starts a program behind the sandbox's walls. It does not wait for it: a
// program that cannot be executed shows in Exit.
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
	s.alone = false
	s.mu.Unlock()

	m := make([]byte, startHead, 4096)
	le := binary.LittleEndian
	le.PutUint32(m[0:], 'S')
	le.PutUint32(m[4:], tag)
	le.PutUint32(m[8:], uint32(len(c.Argv)))
	le.PutUint32(m[12:], uint32(len(c.Env)))
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
	if len(m) < 200<<10 { // what a socket's default buffer takes in one packet
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

// Signal sends a signal to the program alone.
func (p *Proc) Signal(n int) error { return p.signal(n, 1) }

// SignalGroup sends a signal to the program and its process group.
func (p *Proc) SignalGroup(n int) error { return p.signal(n, -1) }

func (p *Proc) signal(n, sign int) error {
	<-p.up
	select {
	case <-p.done:
		return errors.New("the program has ended")
	default:
		p.slot.heed()
		return p.slot.conn.send(words('K', uint32(sign*int(p.pid)), uint32(n)))
	}
}

// heed has init's messages read at full speed for a moment. Init takes no request while
// it waits to report processes that have ended.
func (s *Slot) heed() {
	if s.effort != nil {
		time.AfterFunc(heedFor, s.effort.Free())
	}
}

// heedFor is long enough to read all messages that init's socket holds.
const heedFor = 50 * time.Millisecond

// SignalAll sends a signal to every process in the sandbox but its init.
func (s *Slot) SignalAll(n int) error {
	return s.conn.send(words('K', ^uint32(0), uint32(n)))
}

// Done is closed when the program has ended.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Exit tells how the program ended; only after Done. The error tells that it
// could not be executed at all.
func (p *Proc) Exit() (Exit, error) { return p.exit, p.err }

// read takes init's packets until it ends.
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
		if p.pid == 0 { // those that have started are among the running
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

// packet handles a message of init. It reports whether the message is only about the end
// of a process that the server did not start. A program can cause any number of those;
// init stops sending while its socket is full.
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
	case 'X':
		return s.ended(b)
	case 'A':
		if c := s.clearing[word(b, 1)]; c != nil {
			delete(s.clearing, word(b, 1))
			close(c)
		}
	}
	return false
}

// Clear ends every process in the sandbox but its init and returns when none is
// left. What is started meanwhile may be among them.
func (s *Slot) Clear(ctx context.Context) error {
	defer s.effort.Free()()
	done := make(chan struct{})
	s.mu.Lock()
	if s.dead {
		s.mu.Unlock()
		return ErrEnded
	}
	s.tag++
	tag := s.tag
	s.clearing[tag] = done
	s.mu.Unlock()
	if err := s.conn.send(words('C', tag)); err != nil {
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

// ErrEnded tells that a sandbox has ended, or that nothing is to be started in it any more.
var ErrEnded = errors.New("the sandbox has ended")

func (s *Slot) ended(b []byte) (orphan bool) {
	if len(b) < 40 {
		return false
	}
	s.alone = word(b, 8) == 1 && len(s.starting) == len(s.running) // what is being started is no child yet
	us := binary.LittleEndian.Uint64(b[16:]) + binary.LittleEndian.Uint64(b[24:])
	cpu := time.Duration(us) * time.Microsecond
	s.user += cpu
	p := s.running[word(b, 1)]
	if p == nil {
		return true
	}
	delete(s.running, p.pid)
	for tag, q := range s.starting {
		if q == p {
			delete(s.starting, tag)
		}
	}
	p.exit = Exit{Status: unix.WaitStatus(word(b, 2)), CPU: cpu, MaxRSS: int64(word(b, 3)) << 10}
	close(p.done)
	return false
}

// CPU is what the processes that have ended took, as their parents were told.
func (s *Slot) CPU() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.user
}
