package process

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// This file keeps processes that are started and initialized, and forks them into sandboxes
// (zygotes). The second run of a program that can be forked starts a zygote in the background; with
// Config.Eager the first does. Until it is ready, and if it fails, programs are executed instead.

// forkBounds says when a zygote is replaced and when it is given up. It is replaced because all of
// its forks have the same memory layout and hash seed.
type forkBounds struct {
	forks   int           // most forks of one zygote
	age     time.Duration // most age of a zygote, also of one whose fork waits in a ready sandbox
	rest    time.Duration // pause after a zygote could not be started or was given up
	refused int           // consecutive failed forks after which a zygote is given up
}

var usualForks = forkBounds{forks: 1000, age: 10 * time.Minute, rest: time.Minute, refused: 3}

// hatchLimit bounds how long a process that stays waits for a fork server that is being started.
// Its own imports would take as long.
const hatchLimit = 3 * time.Second

// forkServer is a zygote, or the record of programs for which one may be started.
type forkServer struct {
	cfg jail.ZygoteConfig

	mu       sync.Mutex       // guards the rest; the backend's mu may be taken while it is held, not the reverse
	loads    map[string]*load // by loadKey
	uses     int
	starting chan struct{} // closed when the start of the zygote has ended; nil: it is not being started
	zygote   *jail.Zygote  // nil: none yet
	born     time.Time
	forks    int
	refused  int // consecutive failed forks
	failed   time.Time
	over     bool // the pool has dropped it
}

// first reports whether no process was started in the sandbox yet, and records that one is started
// now.
func (s *sandbox) first() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.started
	s.started = true
	return first
}

// forkKey returns the key of the zygote from which a process can be forked. Empty means that the
// process must be executed. Only the first process of a sandbox is forked: while a fork builds its
// walls, no code of a caller runs beside it.
func (s *sandbox) forkKey(p backend.Process, first bool) string {
	pre := p.Prestart
	if !first && !s.b.cfg.testOnlyForkAgain || !s.forks(pre) || p.Stdin != nil || p.OpenStdin || p.Dir != "" && p.Dir != backend.WorkDir ||
		pre.Fork.Options >= len(p.Argv) || !slices.Equal(p.Argv[:pre.Fork.Options+1], pre.Argv[:pre.Fork.Options+1]) {
		return ""
	}
	return forkServerKey(pre)
}

// forks reports whether the sandbox can use a zygote for p.
func (s *sandbox) forks(p *backend.Prestart) bool {
	return p != nil && p.Fork != nil && s.b.ready != nil && s.hall.Mode() != jail.ModePlain && s.hall.Mode() != jail.ModeContainer && len(p.Program) == 1 &&
		p.Fork.Options >= 1 && p.Fork.Options < len(p.Argv) && p.Argv[p.Fork.Options] == backend.ProgramDir+"/"+p.Program[0].Name && s.b.forksInto()
}

// prewarm starts a zygote for the expected first process of the sandbox.
func (s *sandbox) prewarm(p *backend.Prestart) {
	if s.forks(p) {
		s.b.forkServerFor(s.hall, forkServerKey(p), p, s.spec)
	}
}

// forkServerKey returns the key of a fork server. It contains only a hash of the program's text, so
// callers compare the text as well.
func forkServerKey(p *backend.Prestart) string {
	return strings.Join(slices.Concat(p.Argv, []string{""}, p.Env, []string{strconv.FormatBool(p.Fork.Stays), sumOf(p.Program[0].Data)}), "\x00")
}

var textSeed = maphash.MakeSeed()

// summed is a text with its hash.
type summed struct {
	text []byte
	sum  string
}

var lastSummed atomic.Pointer[summed]

// sumOf returns a hash of a text. Requests have the same text again and again, in the same place.
func sumOf(text []byte) string {
	if last := lastSummed.Load(); last != nil && len(text) > 0 && len(last.text) == len(text) && &last.text[0] == &text[0] {
		return last.sum
	}
	sum := strconv.FormatUint(maphash.Bytes(textSeed, text), 36)
	lastSummed.Store(&summed{text, sum})
	return sum
}

// forksInto reports whether a fork can enter the control groups of this host. On version 2 a
// process must be created in its group, and a fork is not.
func (b *Backend) forksInto() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tree == nil || b.tree.Version() == 1
}

// forkServerFor records a run of a program that can be forked. It returns its fork server, or nil
// if there is none, and the zygote, or nil if it is not ready. It may start one.
func (b *Backend) forkServerFor(h *hall, key string, p *backend.Prestart, spec backend.Spec) (*forkServer, *jail.Zygote) {
	text := p.Program[0].Data
	n, ok := h.forks.Share(key, func() *forkServer {
		return &forkServer{cfg: jail.ZygoteConfig{Argv: p.Argv, Options: p.Fork.Options, Env: p.Env, Text: text, Stays: p.Fork.Stays}, loads: map[string]*load{}}
	})
	if !ok {
		return nil, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over || !bytes.Equal(n.cfg.Text, text) {
		return nil, nil
	}
	n.wantsLocked(p.Fork, spec, b.forkBounds.rest)
	n.uses++
	var old *jail.Zygote
	if n.zygote != nil && (n.forks >= b.forkBounds.forks || time.Since(n.born) >= b.forkBounds.age) {
		old, n.zygote = n.zygote, nil
	}
	if n.zygote == nil && (n.uses >= b.usesBefore() || n.cfg.Stays) && n.starting == nil && time.Since(n.failed) >= b.forkBounds.rest && b.begin() {
		n.starting = make(chan struct{})
		go func() {
			defer b.builds.Done()
			if old != nil {
				old.Close()
			}
			b.hatch(h, n, spec)
		}()
	} else if old != nil {
		go old.Close()
	}
	b.loadLocked(h, n)
	return n, n.zygote
}

// usesBefore returns how many uses of a zygote or a snapshot there are before it is made.
func (b *Backend) usesBefore() int {
	if b.cfg.Eager {
		return 1
	}
	return 2
}

// hatch starts a zygote and tests one fork of it before it is used.
func (b *Backend) hatch(h *hall, n *forkServer, spec backend.Spec) {
	z, err := h.Zygote(n.cfg)
	if err == nil {
		if err = b.tryFork(h, z, spec); err != nil {
			z.Close()
		}
	}
	if err != nil {
		b.log.Debug("programs are not forked but executed", "error", err)
	}
	b.noteFork(err)
	n.mu.Lock()
	close(n.starting)
	n.starting = nil
	over := n.over
	switch {
	case err != nil:
		n.failed = time.Now()
	case !over:
		n.zygote, n.born, n.forks, n.refused = z, time.Now(), 0, 0
		b.loadLocked(h, n)
	}
	n.mu.Unlock()
	if err == nil && over {
		z.Close()
	}
}

// noteFork records the result of the last attempt to start a zygote.
func (b *Backend) noteFork(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noFork = err
}

// NotForked returns why processes are executed and not forked, as far as that is known. It returns
// nil if nothing prevents forks.
func (b *Backend) NotForked() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.halls {
		if h.Mode() == jail.ModePlain {
			return errors.New("there are no namespaces to fork into")
		}
		if h.Mode() == jail.ModeContainer {
			return errors.New("nothing is forked into containers")
		}
	}
	if b.tree != nil && b.tree.Version() != 1 {
		return errors.New("control groups are of version 2, in which processes are born")
	}
	return b.noFork
}

// await waits for a zygote that is being started, and for a snapshot that is being made, up to
// hatchLimit. It is for processes of sessions: a fork uses less memory while it lives.
func (n *forkServer) await(ctx context.Context, load string) *jail.Zygote {
	t := time.NewTimer(hatchLimit)
	defer t.Stop()
	n.mu.Lock()
	starting := n.starting
	n.mu.Unlock()
	if starting != nil {
		select {
		case <-starting:
		case <-t.C:
		case <-ctx.Done():
		}
	}
	n.awaitLoad(ctx, load, t)
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.zygote
}

// tryFork makes a fork in a sandbox of its own. It is a trial, so that no request is the first to
// fail if forks are impossible here.
func (b *Backend) tryFork(h *hall, z *jail.Zygote, spec backend.Spec) error {
	s, err := b.build(h, spec, forServer)
	if err != nil {
		return err
	}
	defer func() { _ = s.end() }()
	s.child, err = s.forkFrom(z, true)
	return err
}

// end ends the zygote for good, also one that is being started.
func (n *forkServer) end() error {
	n.mu.Lock()
	z := n.zygote
	n.zygote, n.over = nil, true
	n.mu.Unlock()
	if z != nil {
		z.Close()
	}
	return nil
}

// fork makes a fork in the sandbox. If the error is jail.ErrNotForked, the sandbox is unchanged.
// After any other error nothing may be run in it.
func (s *sandbox) fork(n *forkServer, z *jail.Zygote, ahead bool) (*jail.Child, error) {
	c, err := s.forkFrom(z, ahead)
	n.mu.Lock()
	n.forks++
	ended := errors.Is(err, jail.ErrEnded) // the sandbox was killed, which tells nothing of the zygote
	if err == nil {
		n.refused = 0
	} else if !ended {
		n.refused++
	}
	over := err != nil && !ended && !s.gone() && n.zygote == z && (z.Broken() || n.refused >= s.b.forkBounds.refused)
	if over {
		n.zygote, n.failed = nil, time.Now()
	}
	n.mu.Unlock()
	if over {
		s.b.log.Warn("a zygote is given up", "error", err)
		z.Close()
	}
	return c, err
}

func (s *sandbox) forkFrom(z *jail.Zygote, ahead bool) (*jail.Child, error) {
	var ways []int
	if s.group != nil {
		entry, err := s.group.Entry()
		if err != nil {
			return nil, errors.Join(jail.ErrNotForked, err)
		}
		defer func() { _ = entry.Close() }()
		for _, f := range entry.Tasks {
			ways = append(ways, int(f.Fd()))
		}
	}
	c, err := z.Fork(s.slot, ways, ahead)
	if err == nil && s.group == nil {
		pinAs(c.HostPID(), s.slot.PID())
	}
	return c, err
}

// readyFork makes a fork in a ready sandbox, if the last program of the sandbox's key could be
// forked. If it returns false, the sandbox may not be used.
func (s *sandbox) readyFork(next prospect) bool {
	n, ok := s.hall.forks.Peek(next.fork)
	if !ok {
		return true
	}
	n.mu.Lock()
	z, born := n.zygote, n.born
	n.mu.Unlock()
	if z == nil {
		return true
	}
	c, err := s.fork(n, z, next.load == "")
	if err != nil {
		return errors.Is(err, jail.ErrNotForked)
	}
	s.child, s.childKey, s.childBorn = c, next.fork, born
	s.waits.Store(true)
	return s.prepare(next.prepared) && s.load(c, n, z, next.load, !n.cfg.Stays) == nil
}

// forkFor returns the keys of the zygote and of the Load that a process can be forked from. For the
// first process of the sandbox, it also records how to prepare the next sandbox.
func (s *sandbox) forkFor(p backend.Process) (key, load string) {
	first := s.first()
	var next prospect
	if key = s.forkKey(p, first); key == "" {
		next.ahead = aheadOf(p)
	} else {
		load = loadKey(p.Prestart.Fork, s.spec)
		next.fork, next.prepared = key, preparedFor(p)
		if s.spec.Loads != "" { // otherwise the next program may load nothing, and Load may have written files in the sandbox
			next.load = load
		}
	}
	if first {
		s.expect(next)
	}
	return key, load
}

// run starts a command. It uses the fork that waits in the sandbox, or makes a new fork, or
// executes the program.
func (s *sandbox) run(ctx context.Context, p backend.Process, cmd jail.Command) (*jail.Proc, error) {
	key, load := s.forkFor(p) //nolint:contextcheck // what it prepares outlives the call
	s.mu.Lock()
	c := s.child
	s.child = nil
	s.mu.Unlock()
	var n *forkServer
	var z *jail.Zygote
	if key != "" {
		if n, z = s.b.forkServerFor(s.hall, key, p.Prestart, s.spec); n != nil && p.Prestart.Fork.Stays { //nolint:contextcheck // what it starts outlives the call
			z = n.await(ctx, load)
		}
	}
	if c != nil && (key == "" || s.childKey != key || s.childLoaded != "" && s.childLoaded != load || time.Since(s.childBorn) >= s.b.forkBounds.age) {
		if err := c.Drop(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
		c = nil
	}
	if c == nil && z != nil {
		var err error
		if c, err = s.fork(n, z, false); err != nil && !errors.Is(err, jail.ErrNotForked) {
			_ = s.killAll()
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the sandbox could not be prepared").WithCause(err)
		}
		if err != nil {
			s.b.log.Debug("a program is not forked but executed", "error", err)
		}
	}
	if c != nil {
		if err := s.load(c, n, z, load, false); err != nil { //nolint:contextcheck // the watch outlives the call
			s.b.log.Debug("a program is not forked but executed", "error", err)
			if err = c.Drop(context.WithoutCancel(ctx)); err != nil {
				return nil, err
			}
			c = nil
		}
	}
	if c != nil {
		proc, err := c.Begin(cmd)
		if err == nil || errors.Is(err, jail.ErrTooLarge) {
			return proc, err
		}
		s.b.log.Debug("a fork ended before it was used", "error", err)
	}
	return s.slot.Start(cmd)
}
