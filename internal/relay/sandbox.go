package relay

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

//go:embed program/relay_amd64.bin
var programAMD64 []byte

//go:embed program/relay_arm64.bin
var programARM64 []byte

// Program returns the container's first program for an architecture, or nil.
func Program(a seccomp.Arch) []byte {
	switch a {
	case seccomp.AMD64:
		return programAMD64
	case seccomp.ARM64:
		return programARM64
	default:
		return nil
	}
}

// Capabilities are those that the container's first process needs. It drops most of them before a
// program is started, and programs have none.
func Capabilities() []string {
	return []string{"CHOWN", "DAC_READ_SEARCH", "KILL", "NET_ADMIN", "NET_BIND_SERVICE", "SETGID", "SETPCAP", "SETUID"}
}

// Config describes the sandbox of a container.
type Config struct {
	Stream  io.ReadWriteCloser // to the container's first process; Open takes ownership
	Arch    seccomp.Arch       // of the container
	Program string             // path of the first program in the container
	Spec    backend.Spec
	UID     int // user and group of programs; if the first process is not root of its container, its own are

	// UserOfOthers says that other sandboxes of the machine may have the user of programs. The number of
	// their tasks is then not limited by user.
	UserOfOthers bool

	// Routed says that the container has a network interface besides loopback, over which the stream may
	// come. Loopback then gets no addresses but those that represent names, and programs have no IPv6.
	Routed bool

	// Answers is an address of the interface at which the relay accepts connections and closes them, so that other sandboxes can
	// try whether they reach this one. If it is not valid, there is none. The port stays free at loopback, where an allowed host may
	// have it.
	Answers netip.AddrPort

	// Isolation adds facts of the container to the observation of the sandbox.
	Isolation func(ctx context.Context, seen Seen) (sandboxmcp.Isolation, error)

	// Usage returns what the container has used. seen asks the container, and returns what the relay has seen of its
	// processes.
	Usage func(ctx context.Context, seen func() Spent) (backend.Usage, error)

	// Lift lifts the container's processor limit, and restore sets it again. Both are bounded in time. The relay and
	// killed programs need processor time to end, and share the limit. nil: it cannot be lifted.
	Lift func() (restore func() error)

	// Remove ends and removes the container. Its waits are bounded.
	Remove func() error
}

// Spent is what the relay has seen of the processes that it started.
type Spent struct {
	CPU    time.Duration // of ended processes and those that they waited for, and of living ones
	Memory int64         // the most that one process has held, in bytes
	Tasks  int           // the most processes that lived at a time
	Killed bool          // since the last call, a process has ended by a SIGKILL that the server did not send
}

// Sandbox is a sandbox in a container.
type Sandbox struct {
	cfg      Config
	c        *conn
	effort   *backend.Effort
	context  context.Context //nolint:containedctx // ends with the sandbox
	cancel   context.CancelFunc
	work     int // descriptor of the working directory
	program  int // of ProgramDir
	standing standing
	before   former

	mu      sync.Mutex
	running map[int]*running // by process id, until their end
	all     []*running       // whose streams may be open
	killed  bool
	watches int

	spent Spent       // of ended processes
	slain atomic.Bool // a process has ended by a SIGKILL that the server did not send, or by its exit status

	observing sync.Mutex // held while first is made
	first     *Seen      // the walls, observed before a program was started; nil: not yet

	quota     quota
	network   network
	closeOnce sync.Once
	closeErr  error
	closing   chan struct{}
	closed    chan struct{}
}

var (
	_ backend.Sandbox   = (*Sandbox)(nil)
	_ backend.Networker = (*Sandbox)(nil)
)

// Open makes a sandbox of a container whose first process is the relay. If it fails, it has closed the
// stream, and the caller removes the container.
func Open(ctx context.Context, cfg Config) (*Sandbox, error) {
	s := &Sandbox{cfg: cfg, effort: backend.NewEffort(), running: map[int]*running{}, closing: make(chan struct{}), closed: make(chan struct{})}
	s.quota.raise = cfg.Lift
	s.context, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if s.c, err = newConn(ctx, cfg.Stream, cfg.Arch, s.effort, s.ended); err != nil {
		s.cancel()
		return nil, fmt.Errorf("the container's first process does not answer: %w", err)
	}
	if err = s.setUp(); err != nil {
		s.c.close()
		s.cancel()
		return nil, err
	}
	return s, nil
}

// ended is called for each process that has ended.
func (s *Sandbox) ended(e exit) {
	s.mu.Lock()
	s.spent.CPU += e.cpu
	s.spent.Memory = max(s.spent.Memory, e.memory)
	s.spent.Tasks = max(s.spent.Tasks, len(s.running))
	r, killed := s.running[e.pid], s.killed
	delete(s.running, e.pid)
	s.mu.Unlock()
	if r == nil {
		s.effort.Pace(backend.CostExit)
		return
	}
	end := exitOf(e.status, killed)
	if (end.Signal == sigKILL || end.Code == 128+sigKILL) && !r.killed.Load() {
		s.slain.Store(true)
	}
	r.finish(end)
}

// live returns fs.ErrClosed after Kill and Close.
func (s *Sandbox) live() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isLive()
}

// isLive is live for a caller that holds mu.
func (s *Sandbox) isLive() error {
	select {
	case <-s.closed:
		return fs.ErrClosed
	case <-s.c.gone:
		return fs.ErrClosed
	default:
	}
	if s.killed {
		return fs.ErrClosed
	}
	return nil
}

// Start starts a process. The walls were observed before the first one.
func (s *Sandbox) Start(ctx context.Context, p backend.Process) (backend.Running, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch {
	case p.Channels < 0 || p.Channels > backend.MaxChannels:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d channels: a process has 0 to %d", p.Channels, backend.MaxChannels)
	case p.User != "":
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the sandbox has no user %s", sandboxmcp.Quote(p.User)).WithHint("leave the user empty: programs run as the sandbox's only user")
	case p.Terminal != nil:
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "a process has a terminal only in a sandbox that was opened for terminals")
	}
	_, err := s.observed(ctx)
	for _, f := range p.Program {
		if strings.Contains(f.Name, "/") {
			return nil, fmt.Errorf("start process: write %s: %w", f.Name, failure(22))
		}
	}
	if err == nil {
		err = s.provide(p.Program)
	}
	var r *running
	if err == nil {
		r, err = s.start(p)
	}
	if errors.Is(err, errGone) {
		err = fs.ErrClosed
	}
	if err == nil {
		err = s.keep(r)
	}
	if err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	return r, nil
}

// keep adds a started process to those that Close ends. If Kill or Close came between, they may not have
// ended it: then keep does, and fails.
func (s *Sandbox) keep(r *running) error {
	s.mu.Lock()
	err := s.isLive()
	if err == nil {
		s.all = append(slices.DeleteFunc(s.all, (*running).over), r)
	}
	s.mu.Unlock()
	if err != nil {
		_ = s.clear()
		r.close()
		r.finish(lost)
	}
	return err
}

// over reports whether a process has ended and its output was read. It then closes its streams.
func (r *running) over() bool {
	select {
	case <-r.done:
	default:
		return false
	}
	for _, o := range r.outputs {
		select {
		case <-o.done:
		default:
			return false
		}
	}
	r.close()
	return true
}

// clearLimit bounds the time in which the processes of a sandbox have to end.
const clearLimit = 10 * time.Second

// Kill ends every process.
func (s *Sandbox) Kill(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	s.killed = true
	s.mu.Unlock()
	defer s.hurry()() // the limit stays lifted: nothing runs any more
	s.network.close()
	defer s.effort.Free()()
	if err := s.clear(); err != nil && !errors.Is(err, errGone) {
		return err
	}
	l := s.c.list() // the program may have removed the owner's permissions
	l.try("fchmodat", num(atFDCWD), l.str(backend.WorkDir), num(0o700))
	_, err := s.c.run(l)
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// Clear ends every process and keeps the sandbox. If it fails, the sandbox may not be used: its limit may be lifted.
func (s *Sandbox) Clear(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.live(); err != nil {
		return err
	}
	defer s.effort.Free()()
	done := s.hurry()
	err := s.clear()
	if err == nil {
		l := s.c.list()
		l.try("fchmodat", num(atFDCWD), l.str(backend.WorkDir), num(0o700))
		_, err = s.c.run(l)
	}
	if done() {
		err = errors.Join(err, s.quota.restore())
	}
	return err
}

// clear ends all processes. Their ends are reported before it returns.
func (s *Sandbox) clear() error {
	s.mu.Lock()
	for _, r := range s.running {
		r.killed.Store(true)
	}
	s.mu.Unlock()
	_, q, err := s.c.ask(nil, func(tag uint32) ([]byte, error) { return words(12, 'C', tag), nil })
	if err != nil {
		return err
	}
	t := time.NewTimer(clearLimit)
	defer t.Stop()
	select {
	case <-q.answer:
		return nil
	case <-s.c.gone:
		return errGone
	case <-t.C:
		s.c.close() // the relay ends, and the container with it
		return fmt.Errorf("processes have not ended within %s", clearLimit)
	}
}

// Attach fails: the container's mounts are the engine's.
func (s *Sandbox) Attach(ctx context.Context, _ backend.Tree) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.cannot("trees cannot be attached to a container of this runtime")
}

// Freeze fails.
func (s *Sandbox) Freeze(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.cannot("a container of this runtime cannot be frozen")
}

// Thaw fails.
func (s *Sandbox) Thaw(ctx context.Context) error { return s.Freeze(ctx) }

func (*Sandbox) cannot(what string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "%s", what).WithHint("use the runtime runc, or the process backend")
}

// Isolation reports the walls that were observed before a program was started, and the present ones of
// the network and of the container.
func (s *Sandbox) Isolation(ctx context.Context) (sandboxmcp.Isolation, error) {
	if err := ctx.Err(); err != nil {
		return sandboxmcp.Isolation{}, err
	}
	seen, err := s.observed(ctx)
	if err != nil {
		return sandboxmcp.Isolation{}, err
	}
	return s.cfg.Isolation(ctx, seen)
}

// Usage returns what the sandbox has used.
func (s *Sandbox) Usage(ctx context.Context) (backend.Usage, error) {
	if err := ctx.Err(); err != nil {
		return backend.Usage{}, err
	}
	select {
	case <-s.closed:
		return backend.Usage{}, fs.ErrClosed
	default:
		return s.cfg.Usage(ctx, s.spend)
	}
}

// spend returns what was seen of the processes until now.
func (s *Sandbox) spend() Spent {
	s.mu.Lock()
	s.spent.Tasks = max(s.spent.Tasks, len(s.running))
	seen, living := s.spent, slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	seen.Killed = s.slain.Swap(false)
	for _, pid := range living {
		cpu, memory := s.c.living(pid)
		seen.CPU += cpu
		seen.Memory = max(seen.Memory, memory)
	}
	return seen
}

// drainLimit is how long a closing sandbox waits for a slow reader of its output.
const drainLimit = 2 * time.Second

// Close ends the container.
func (s *Sandbox) Close(context.Context) error {
	s.closeOnce.Do(func() {
		close(s.closing)
		defer s.hurry()() // also while it is removed
		s.effort.Free()
		s.mu.Lock()
		s.killed = true
		all := s.all
		s.all = nil
		s.mu.Unlock()
		s.network.close()
		_ = s.clear()
		for _, r := range all {
			for _, o := range r.outputs {
				within(drainLimit, o.done)
			}
			r.close()
		}
		close(s.closed)
		s.cancel()
		s.c.close()
		for _, r := range all {
			r.finish(lost)
		}
		s.closeErr = s.cfg.Remove()
	})
	return s.closeErr
}

// Text returns the beginning of a file of the container, such as one of its control group. A program that
// has taken over the container's kernel can write it.
func (s *Sandbox) Text(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return s.c.text(name)
}

// Texts is Text for the first KiB of several files, at most 20, with one packet. A file that cannot be read is nil.
func (s *Sandbox) Texts(ctx context.Context, names ...string) ([][]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.c.texts(names)
}

// Gone returns a channel that is closed when the container has ended.
func (s *Sandbox) Gone() <-chan struct{} { return s.c.gone }

// Closing returns a channel that is closed when Close has begun.
func (s *Sandbox) Closing() <-chan struct{} { return s.closing }

// Dial connects to a port of the sandbox's loopback address.
func (s *Sandbox) Dial(ctx context.Context, port int) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if port < 1 || port > 65535 {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "there is no port %d", port)
	}
	conn, err := s.dial(ctx, netip.AddrPortFrom(netip.AddrFrom4(loop), uint16(port)))
	if errors.Is(err, errGone) {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the sandbox has ended, and none of its ports can be reached").WithHint("use a new one").WithCause(err)
	}
	return conn, err
}
