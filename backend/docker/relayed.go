package docker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/dockerapi"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
	"github.com/sandboxmcp/sandboxmcp/internal/relay"
)

// Relayed is the backend of containers whose runtime passes no descriptors to the server, such as
// gVisor's runsc and Kata. The server has only the engine's stream to their first process, see package
// relay. Its methods may be called concurrently.
type Relayed struct {
	engine *Engine
	cfg    Config
	found  interpreters
	idle   atomic.Bool
	ready  *readyPool

	builds sync.WaitGroup

	mu     sync.Mutex
	trials int
	live   map[*relayedSandbox]struct{}
	closed bool
	seen   *sandboxmcp.Isolation // of the first sandbox
}

var (
	_ backend.Backend = (*Relayed)(nil)
	_ backend.Pooler  = (*Relayed)(nil)
)

// For returns the backend that a configuration needs: New, or NewRelayed where the engine or its
// runtime passes no descriptors.
func For(cfg Config) Checker {
	if cfg.relays() {
		return NewRelayed(cfg)
	}
	return New(cfg)
}

// relays reports whether containers need the relay: their kernel is not this machine's, or this process
// may not use that it is.
func (c Config) relays() bool { return c.ownKernel() || !c.local() }

// ownKernel reports whether the runtime may have a kernel of its own.
func (c Config) ownKernel() bool { return c.Runtime != "" && c.Runtime != runc }

// local reports whether the engine shares this machine's kernel and files, and this process may use that.
func (c Config) local() bool {
	return runtime.GOOS == "linux" && (c.Host == "" || strings.HasPrefix(c.Host, "unix://")) && os.Geteuid() == 0
}

const runc = "runc"

// NewRelayed returns the backend. It does not connect to the engine before it is used.
func NewRelayed(cfg Config) *Relayed {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e := newEngine(cfg)
	b := &Relayed{engine: e, cfg: e.cfg, live: map[*relayedSandbox]struct{}{}}
	b.ready = b.newReadyPool()
	b.idle.Store(cfg.Idle)
	return b
}

// Name returns "docker".
func (*Relayed) Name() string { return Name }

// relayedSandbox is a sandbox of the backend.
type relayedSandbox struct {
	*relay.Sandbox
	b    *Relayed
	key  string // of the pool
	once sync.Once
	err  error
	iso  sandboxmcp.Isolation // as it was observed when it was built
}

// Close ends the container.
func (s *relayedSandbox) Close(ctx context.Context) error {
	s.once.Do(func() {
		s.err = s.Sandbox.Close(ctx)
		s.b.mu.Lock()
		delete(s.b.live, s)
		s.b.mu.Unlock()
		if s.key != "" {
			s.b.ready.Done(s.key)
			s.b.ready.Fill()
		}
	})
	return s.err
}

// Open returns a ready sandbox, or starts a container.
func (b *Relayed) Open(ctx context.Context, spec backend.Spec) (backend.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.idle.Store(false)
	if spec.Terminal {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "containers of the runtime %s have no terminals", b.runtime()).WithHint("use the runtime runc, or the process backend")
	}
	if b.isClosed() {
		return nil, closedError()
	}
	s := b.ready.take(spec) //nolint:contextcheck // what it builds outlives the call
	if s == nil {
		var err error
		if s, err = b.build(spec); err != nil { //nolint:contextcheck // see build
			b.ready.Done(keyOf(spec))
			return nil, err
		}
	}
	s.key = keyOf(spec)
	err := ctx.Err()
	minimum := spec.MinTier
	if minimum == "" {
		minimum = b.cfg.Process.MinTier
	}
	if err == nil && !s.iso.Tier.AtLeast(minimum) {
		err = sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the engine reaches isolation %s, and %s is demanded", s.iso.Tier, minimum).
			WithHint("run `sandboxmcp doctor` to see which wall is missing, or lower isolation_min")
	}
	if err != nil {
		b.ready.Done(s.key)
		s.key = ""
		if ctx.Err() != nil && b.ready.Put(keyOf(spec), s) { // the container was late for its caller; the next one takes it
			return nil, err
		}
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	b.ready.Fill()
	return s, nil
}

func (b *Relayed) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

func closedError() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the %s backend is closed", Name)
}

// runtime is the name of the runtime for the engine and for reports.
func (b *Relayed) runtime() string { return b.engine.runtimeName() }

// Capabilities builds a trial sandbox.
func (b *Relayed) Capabilities(ctx context.Context) backend.Capabilities {
	if b.idle.Load() {
		return backend.Capabilities{Reason: "no request has used it yet"}
	}
	b.mu.Lock()
	seen := b.seen
	b.trials++
	id := "trial-" + strconv.Itoa(b.trials)
	b.mu.Unlock()
	if seen == nil {
		sb, err := b.Open(ctx, backend.Spec{ID: id, MinTier: sandboxmcp.TierL0, MemoryBytes: 256 << 20, CPUCores: 1, MaxTasks: 16, WorkBytes: 1 << 20, WorkInodes: 64, TempBytes: 1 << 20})
		if err != nil {
			return backend.Capabilities{Reason: sandboxmcp.AsError(err).Message}
		}
		_ = sb.Close(ctx)
		b.mu.Lock()
		seen = b.seen
		b.mu.Unlock()
	}
	return backend.Capabilities{Available: true, Isolation: *seen, Dial: true}
}

// Interpreter returns an interpreter of the image.
func (b *Relayed) Interpreter(ctx context.Context, l sandboxmcp.Language) (backend.Interpreter, error) {
	return b.found.interpreter(ctx, b, b.engine, l)
}

// Interpreters lists the interpreters of the image.
func (b *Relayed) Interpreters(ctx context.Context) ([]sandboxmcp.Runtime, error) {
	return b.found.in(ctx, b, b.engine)
}

// Close ends every sandbox.
func (b *Relayed) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	live := make([]*relayedSandbox, 0, len(b.live))
	for s := range b.live {
		live = append(live, s)
	}
	b.mu.Unlock()
	errs := []error{b.ready.Close(), backend.CloseAll(ctx, live)}
	b.builds.Wait() // what they make is closed by them
	b.engine.close()
	return errors.Join(append(errs, b.engine.removeProgram())...)
}

// relayedOptions returns the container of a sandbox whose first process is the relay.
func (b *Relayed) relayedOptions(spec backend.Spec, image string, uid int) (dockerapi.Container, error) {
	o := options(b.containerSpec(spec, uid), image, b.engine.owner, b.engine.programDir, "")
	trees := append(slices.Clone(spec.Trees), b.shown(spec)...)
	if len(trees) > 0 && !b.engine.cfg.local() {
		return o, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "directories of this machine cannot be shown by the engine at %s", b.cfg.Host).WithHint("use an engine on this machine, or leave packages and workspace_path out")
	}
	if bad := missing(trees); bad != "" {
		return o, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s cannot be shown in a container", sandboxmcp.Quote(bad))
	}
	c, h := &o, &o.HostConfig
	c.User, c.OpenStdin, c.StdinOnce, c.AttachStdin, c.AttachStdout, c.AttachStderr = "0:0", true, true, true, true, true
	c.Entrypoint = []string{relayProgram}
	h.Runtime, h.CapAdd, h.SecurityOpt, h.DNS = b.runtime(), relay.Capabilities(), []string{"no-new-privileges"}, addresses("127.0.0.1")
	if !b.engine.cfg.local() {
		c.Entrypoint, c.Cmd, h.Mounts = []string{"/bin/sh", "-c", bootstrap}, []string{}, nil
	}
	for _, t := range trees {
		h.Mounts = append(h.Mounts, bind(t.Host, t.At()))
	}
	if b.cfg.ownKernel() { // it has none of these, and no second network to guard
		h.Sysctls = nil
	}
	return o, nil
}

// shown returns the directory of the operator that programs see.
func (b *Relayed) shown(spec backend.Spec) []backend.Tree {
	if b.cfg.Process.Shown == "" || spec.Apart {
		return nil
	}
	return []backend.Tree{{Host: b.cfg.Process.Shown, Inside: workspaceDir}}
}

// build starts a container and makes a sandbox of it. It has no context: a container that is late for
// its caller is kept for the next one.
func (b *Relayed) build(spec backend.Spec) (*relayedSandbox, error) {
	ctx, cancel := context.WithTimeout(context.Background(), engineLimit) //nolint:forbidigo // as of Engine.Start
	defer cancel()
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, closedError()
	}
	b.builds.Add(1)
	b.mu.Unlock()
	defer b.builds.Done()
	built, err := b.start(ctx, spec)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		b.mu.Unlock()
		err = errors.Join(closedError(), built.Sandbox.Close(ctx))
		b.mu.Lock()
		return nil, err
	}
	b.live[built] = struct{}{}
	if b.seen == nil {
		b.seen = &built.iso
	}
	return built, nil
}

func (b *Relayed) start(ctx context.Context, spec backend.Spec) (*relayedSandbox, error) {
	e := b.engine
	api, has, err := e.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err = e.offers(b.runtime()); err != nil {
		return nil, err
	}
	if e.cfg.local() {
		if err = e.provideProgram(); err != nil {
			return nil, e.failure("make a directory in "+b.cfg.Dir, err)
		}
	}
	uid := e.user()
	wanted, err := b.relayedOptions(spec, has.id(spec.Image), uid)
	if err != nil {
		return nil, err
	}
	machine, err := api.Info(ctx) // it may have another kernel since the last container
	if err != nil {
		e.lost(api, err)
		return nil, e.failure("look at the engine", err)
	}
	id, err := api.ContainerCreate(ctx, wanted)
	if err != nil {
		e.lost(api, err)
		return nil, e.failure("create a container", err)
	}
	box := &box{b: b, id: id, spec: spec, uid: uid, kernel: machine.KernelVersion, cores: machine.NCPU, swaps: machine.SwapLimit, ahead: ahead(machine.SystemTime), ended: make(chan struct{})}
	sb, err := box.enter(ctx, api)
	if err != nil {
		e.lost(api, err)
		return nil, errors.Join(err, box.remove()) //nolint:contextcheck // it is removed also when ctx has ended
	}
	if box.meter != nil {
		box.meter.begin(ctx)
	}
	s := &relayedSandbox{Sandbox: sb, b: b}
	if s.iso, err = sb.Isolation(ctx); err != nil {
		return nil, errors.Join(e.failure("look at a container", err), sb.Close(ctx))
	}
	if lacking := lacks(s.iso.Walls); lacking != "" {
		return nil, errors.Join(sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the wall %q does not stand around a container of the runtime %s", lacking, b.runtime()), sb.Close(ctx))
	}
	return s, nil
}

// box is a container of the relay.
type box struct {
	b      *Relayed
	id     string
	spec   backend.Spec
	uid    int           // of programs
	kernel string        // release of the engine's machine
	cores  int           // of the engine's machine
	swaps  bool          // that machine counts swap of containers
	ahead  time.Duration // of the engine's clock
	group  limitGroup
	meter  *meter // nil: group is read

	gone  <-chan struct{} // closed when it has ended
	ended chan struct{}   // closed when last is what the container had used at its end
	last  backend.Usage
}

// usage returns the usage of the container. A container that has ended has no control group any more.
func (x *box) usage(ctx context.Context, seen func() relay.Spent) backend.Usage {
	select {
	case <-x.gone:
		<-x.ended
		return x.last
	default:
	}
	if x.meter != nil {
		return x.meter.usage(ctx, seen())
	}
	return x.group.usage()
}

// atEnd reads the control group at the container's end, before the engine removes it. If memory runs
// out, the kernel of this machine ends the whole container, because its programs are memory of its
// runtime.
func (x *box) atEnd(closing <-chan struct{}, api *dockerapi.Client) {
	defer close(x.ended)
	select {
	case <-x.gone:
	case <-closing:
	}
	select {
	case <-closing: // its usage is not asked for any more
		return
	default:
	}
	if x.meter != nil {
		x.last = x.meter.seen()
	} else {
		x.last = x.group.usage()
	}
	if x.last.OOMKills > 0 {
		return
	}
	if x.group.ended() { // the engine has removed the group meanwhile
		x.last.OOMKills, x.last.PeakMemory = 1, x.spec.MemoryBytes
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stateLimit) //nolint:forbidigo // it belongs to no call
	defer cancel()
	state, err := api.ContainerInspect(ctx, x.id)
	if err == nil && state.State.OOMKilled {
		x.last.OOMKills, x.last.PeakMemory = 1, max(x.last.PeakMemory, x.spec.MemoryBytes)
	}
}

// stateLimit bounds the time in which the engine says how a container ended.
const stateLimit = 5 * time.Second

// enter starts the container and speaks to its first process.
func (x *box) enter(ctx context.Context, api *dockerapi.Client) (*relay.Sandbox, error) {
	e := x.b.engine
	at, err := api.ContainerAttach(ctx, x.id)
	if err != nil {
		return nil, e.failure("attach to a container", err)
	}
	line := newStream(at, at.Reader)
	if err = api.ContainerStart(ctx, x.id); err != nil {
		return nil, errors.Join(e.failure("start a container", err), line.Close())
	}
	state, err := api.ContainerInspect(ctx, x.id)
	if err != nil {
		return nil, errors.Join(e.failure("look at a container", err), line.Close())
	}
	if !e.cfg.local() {
		if err = line.bootstrap(relay.Program(e.arch)); err != nil {
			return nil, errors.Join(e.failure("start a container", err), line.Close())
		}
	}
	x.group, err = limit(x.b.cfg, x.id, state.State.Pid, x.spec)
	if err != nil {
		return nil, errors.Join(e.failure("limit a container", err), line.Close())
	}
	if !x.group.read() {
		x.meter = &meter{api: api, id: x.id, since: started(state.State.StartedAt), limit: x.spec.MemoryBytes, log: x.b.cfg.Logger, ahead: x.ahead}
	}
	program := relayProgram
	if !e.cfg.local() {
		program = bootstrapped
	}
	sb, err := relay.Open(ctx, relay.Config{
		Stream: line, Arch: e.arch, Program: program, Spec: x.spec, UID: x.uid,
		Isolation: func(_ context.Context, seen relay.Seen) (sandboxmcp.Isolation, error) {
			return x.isolation(seen, state.HostConfig.Runtime), nil
		},
		Usage: func(ctx context.Context, seen func() relay.Spent) (backend.Usage, error) {
			return x.usage(ctx, seen), nil
		},
		Lift:   func() func() error { return x.lift(api) }, //nolint:contextcheck // it is bounded by itself
		Remove: x.remove,
	})
	if err != nil {
		return nil, e.failure("start a container", fmt.Errorf("%w%s", err, line.said()))
	}
	x.gone = sb.Gone()
	go x.atEnd(sb.Closing(), api) //nolint:contextcheck,gosec // it lives as long as the container
	return sb, nil
}

// remove removes the container.
func (x *box) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), engineLimit) //nolint:forbidigo // it is called when the caller's context may have ended
	defer cancel()
	if x.gone != nil {
		<-x.ended // atEnd uses the group
	}
	return errors.Join(x.group.close(), x.b.engine.remove(ctx, x.id))
}

// isolation reports the observed walls of the sandbox and the kernel that holds them, for the runtime that the
// engine names.
func (x *box) isolation(seen relay.Seen, named string) sandboxmcp.Isolation {
	held, weak := x.group.held()
	if x.meter != nil {
		held, weak = x.meter.walls(x.spec.MaxTasks + x.b.cfg.runtimeTasks())
		if !x.swaps {
			weak = append(weak, "memory limit: the engine's kernel does not count swap")
		}
	}
	return x.report(seen, named, held, weak)
}

// report reports the observed walls, for the runtime that the engine names and the limits that it holds. On
// the kernel of the engine's machine the tier is L1, because namespaces are not observed.
func (x *box) report(seen relay.Seen, named string, held, weak []string) sandboxmcp.Isolation {
	e := x.b.engine
	release, _, _ := strings.Cut(seen.Kernel, " ")
	iso := sandboxmcp.Isolation{Backend: Name, Kernel: release, Tier: sandboxmcp.TierL1, PolicySHA256: e.policy(x.b.runtime()), Weak: []string{}}
	iso.Walls = append(seenWalls(seen, x.spec), held...)
	iso.Weak = append(append(iso.Weak, weak...), seen.WeakDisks()...)
	e.mu.Lock()
	iso.Weak = append(iso.Weak, e.weak...)
	e.mu.Unlock()
	if named == x.b.runtime() && x.b.cfg.ownKernel() && release != "" && x.kernel != "" && release != x.kernel {
		iso.Tier = sandboxmcp.TierL4
		iso.Walls = append(iso.Walls, "kernel of its own ("+seen.Kernel+")")
		iso.Weak = append(iso.Weak, "tasks: the container's kernel counts its own tasks, and only what they need of this machine is held", "landlock: the container's kernel has none", relay.WeakFiles)
		return iso
	}
	if seen.Landlock == 0 {
		iso.Weak = append(iso.Weak, "landlock: none")
	}
	iso.Weak = append(iso.Weak, "namespaces: the runtime's, not observed", "file locks, connections, queued datagrams: not counted")
	if _, files := seen.Bounded(x.spec); !files {
		iso.Weak = append(iso.Weak, relay.WeakFiles)
	}
	return iso
}

// seccompArch returns an architecture as the engine names it.
func seccompArch(name string) (seccomp.Arch, bool) {
	switch name {
	case "x86_64", "amd64":
		return seccomp.AMD64, true
	case "aarch64", "arm64":
		return seccomp.ARM64, true
	default:
		return "", false
	}
}
