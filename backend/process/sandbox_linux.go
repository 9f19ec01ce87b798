package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/watch"
)

// drainLimit is how long a closing sandbox waits for a slow reader of its output.
const drainLimit = 2 * time.Second

// wallUIDs is the wall that only a root server builds.
const wallUIDs = "own block of host user ids"

type sandbox struct {
	b           *Backend
	hall        *hall
	spec        backend.Spec // before the sandbox is handed out, give replaces it with mu held
	rlimitTasks int          // limit of tasks of its processes when they are started; resize lowers it to that of spec
	rlimitData  int64        // the same of their data, without a control group; see dataBytes
	key         poolKey      // under which it was opened; set before it is handed out
	slot        *jail.Slot
	group       *cgroup.Group // nil: none
	watch       *watch.Group  // nil: the kernel enforces the limits
	place       *jail.Place   // tier L1 only
	container   *Container    // nil: it is a jail of this package
	root        string        // its directory on the host; tier L1 only
	lock        *os.File      // lock on root
	pinned      unix.CPUSet   // its processors if it has no control group; empty: all

	objects     *watch.Target // the sandbox as a target of the kernel object watch; nil: nothing has run in it
	asked       bool          // it was handed out to a caller
	waits       atomic.Bool   // package code may run in it, and it is not handed out
	child       *jail.Child   // a fork that waits; guarded by mu once the sandbox is handed out
	childKey    string
	childLoaded string    // key of the snapshot that the fork has loaded
	childBorn   time.Time // start time of the fork's zygote
	prepared    prepared  // for the fork's program; guarded as child
	ahead       *ahead    // a process that waits; guarded by mu once the sandbox is handed out

	net    network         // its network
	effort *backend.Effort // bounds the server's time for it

	attaching sync.Mutex  // held while trees are attached
	trees     []jail.Tree // the attached trees; guarded by attaching

	closeOnce sync.Once
	closeErr  error

	accesses chan struct{} // has an element for each call of its files that goes on

	use uses // of its descriptors from outside

	dying atomic.Bool  // killFreely has started; the sandbox cannot be used again
	quota sync.RWMutex // write-locked while Clear lifts the processor limit, read-locked while walls are read

	freezing sync.RWMutex // write-locked while the sandbox is frozen or thawed, read-locked while a process is started
	frozen   atomic.Bool  // changed while freezing is write-locked

	mu       sync.Mutex
	streams  []stream // of its processes; those that have ended are removed on Start
	kept     bool     // its group is in the pool
	started  bool     // a process was started
	watches  int      // number of open watches of its files
	exceeded []string // for Usage.Exceeded
}

// purpose says what a sandbox is built for.
type purpose int

const (
	forCaller purpose = iota // handOut gives it to a caller
	forLater                 // it is kept ready
	forServer                // a trial or an import
)

// build makes a sandbox in a jail. If build fails, it leaves nothing behind.
func (b *Backend) build(h *hall, spec backend.Spec, p purpose) (*sandbox, error) {
	if err := b.reserveTasks(spec.MaxTasks, p != forCaller); err != nil {
		return nil, err
	}
	s := &sandbox{b: b, hall: h, spec: spec, rlimitTasks: spec.MaxTasks, rlimitData: dataBytes(spec), effort: backend.NewEffort(), accesses: make(chan struct{}, maxAccesses)}
	if p == forLater {
		s.loosen(b.resizes())
	}
	if err := b.reserveTerminals(h, &s.spec); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if h.Mode() == jail.ModeContainer {
		return b.buildContainer(s)
	}
	turn, err := h.Turn()
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	defer turn.Cancel()
	b.mu.Lock()
	tree, mode := b.tree, h.Mode()
	b.mu.Unlock()
	cfg := s.limitedConfig(tree, mode)
	done, err := s.limit(tree, &cfg)
	defer done()
	if err == nil {
		err = s.settle(mode, &cfg)
	}
	if err == nil {
		s.slot, err = turn.New(cfg)
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	if tree == nil {
		s.pinned = b.processors.pin(s.slot.PID(), spec.CPUCores)
	}
	if err = s.furnish(); err != nil {
		_ = s.end()
		return nil, err
	}
	return s, nil
}

// slotConfig returns what the Spec says of the sandbox.
func (s *sandbox) slotConfig() jail.SlotConfig {
	spec := s.spec
	return jail.SlotConfig{
		Effort:   effort{s.effort},
		Terminal: spec.Terminal,
		Apart:    spec.Apart,
		Size: jail.Size{
			WorkBytes: workBytes(spec), WorkInodes: spec.WorkInodes, TempBytes: spec.TempBytes,
			MaxTasks: s.rlimitTasks, CPUSeconds: cpuSeconds(spec),
		},
	}
}

// limitedConfig is slotConfig with what depends on the control groups; nil: there are none.
func (s *sandbox) limitedConfig(tree *cgroup.Tree, mode jail.Mode) jail.SlotConfig {
	cfg := s.slotConfig()
	switch {
	case tree == nil:
		cfg.WantProc = mode != jail.ModePlain
		cfg.Size.DataBytes, cfg.Size.TempBytes = s.rlimitData, tempBytes(s.spec)
	case tree.Version() == 1:
		cfg.Ways = tree.Ways()
	}
	return cfg
}

// comingLocked returns the sandbox that Warm expects in a jail of a mode, or nil.
func (b *Backend) comingLocked(mode jail.Mode) *jail.SlotConfig {
	spec := b.coming
	b.coming = nil
	if spec == nil || mode != jail.ModeRoot && mode != jail.ModeUser {
		return nil
	}
	s := &sandbox{b: b, spec: *spec, rlimitTasks: spec.MaxTasks, rlimitData: dataBytes(*spec)}
	s.loosen(b.resizesLocked())
	cfg := s.limitedConfig(b.tree, mode)
	return &cfg
}

// effort charges the messages of init to a sandbox's share of the server's time.
type effort struct{ *backend.Effort }

func (e effort) Pace() { e.Effort.Pace(backend.CostExit) }

// limit prepares the sandbox's control group. On version 1, init enters it while the walls are
// built. On version 2, init is created in it. The caller calls done after the build.
func (s *sandbox) limit(tree *cgroup.Tree, cfg *jail.SlotConfig) (done func(), err error) {
	var entry cgroup.Entry
	done = func() { _ = entry.Close() }
	if tree == nil {
		return done, nil
	}
	enter := func() ([]int, error) {
		s.group, err = s.b.group(tree, cgroup.Limits{MemoryBytes: s.spec.MemoryBytes, CPUCores: s.spec.CPUCores, MaxTasks: s.spec.MaxTasks + 1})
		if err == nil {
			entry, err = s.group.Entry()
		}
		var tasks []int
		for _, f := range entry.Tasks {
			tasks = append(tasks, int(f.Fd()))
		}
		return tasks, err
	}
	if tree.Version() == 1 {
		cfg.Enter = enter
		return done, nil
	}
	if _, err = enter(); err == nil {
		cfg.Cgroup = int(entry.Dir.Fd())
	}
	return done, err
}

// Start starts a process.
func (s *sandbox) Start(ctx context.Context, p backend.Process) (backend.Running, error) {
	if err := errors.Join(ctx.Err(), s.check(p)); err != nil {
		return nil, err
	}
	if p.Terminal != nil {
		p.Prestart = nil
	}
	release, err := s.holdLive()
	if err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	defer release()
	awake, err := s.stayAwake()
	if err != nil {
		return nil, err
	}
	defer awake()
	if r, gone := s.goOn(p); gone != nil { //nolint:contextcheck // a fork server outlives the call
		return nil, errors.Join(fmt.Errorf("start process: %w", gone), s.slot.Kill())
	} else if r != nil {
		return r, nil
	}
	files, st := s.takePrepared(p)
	if err = s.putProgram(files); err == nil && st == nil {
		st, err = s.openStreams(p)
		s.b.refused(err)
	}
	if err != nil {
		if st != nil {
			st.closeTheirs()
			st.close(0)
		}
		return nil, fmt.Errorf("start process: %w", err)
	}
	cmd := jail.Command{Argv: p.Argv, Env: p.Env, Dir: p.Dir, Files: st.theirs, Terminal: p.Terminal != nil}
	if cmd.Dir == "" {
		cmd.Dir = backend.WorkDir
	}
	s.relocate(&cmd)
	st.carry(p.Stdout, p.Stderr)
	proc, err := s.run(ctx, p, cmd)
	st.closeTheirs()
	if err != nil {
		st.close(0)
		if errors.Is(err, jail.ErrTooLarge) {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "env is too large: arguments and environment have to stay below 200 KiB")
		}
		return nil, fmt.Errorf("start process: %w", err)
	}
	s.mu.Lock()
	s.streams = append(s.streams, stream{st, proc})
	s.mu.Unlock()
	return &running{s: s, proc: proc, pipes: st}, nil
}

// check returns an error for a process that this sandbox cannot start.
func (s *sandbox) check(p backend.Process) error {
	if p.Channels < 0 || p.Channels > backend.MaxChannels {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%d channels: a process has 0 to %d", p.Channels, backend.MaxChannels)
	}
	if p.User != "" && (p.User != jail.InsideUser || s.place != nil || s.container != nil) {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the sandbox has no user %s", sandboxmcp.Quote(p.User)).
			WithHint("leave the user empty: programs run as the sandbox's only user")
	}
	if p.Terminal != nil && !s.spec.Terminal {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "a process has a terminal only in a sandbox that was opened for terminals")
	}
	return nil
}

// stream is the streams of one process.
type stream struct {
	*pipes
	proc *jail.Proc
}

// over closes the streams of a process that has ended and whose output has been copied. It reports
// whether it did.
func (s stream) over() bool {
	select {
	case <-s.proc.Done():
	default:
		return false
	}
	select {
	case <-s.copied():
		s.close(0)
		return true
	default:
		return false
	}
}

// hold keeps the sandbox's descriptors open until release is called. Without it, their numbers may
// already belong to other files. It does not wait.
func (s *sandbox) hold() (release func(), err error) { return s.use.take() }

// relocate replaces sandbox paths in arguments and environment by host paths, for a sandbox without
// a mount namespace.
func (s *sandbox) relocate(c *jail.Command) {
	if s.place == nil {
		return
	}
	move := func(v string) string {
		for _, m := range [][2]string{{backend.WorkDir, s.place.Work}, {backend.ProgramDir, s.place.Program}, {backend.TempDir, s.place.Temp}} {
			if v == m[0] || strings.HasPrefix(v, m[0]+"/") {
				return m[1] + v[len(m[0]):]
			}
		}
		return v
	}
	c.Dir, c.Argv, c.Env = move(c.Dir), slices.Clone(c.Argv), slices.Clone(c.Env) // the caller's stay as they are
	for i, a := range c.Argv {
		c.Argv[i] = move(a)
	}
	for i, e := range c.Env {
		if k, v, ok := strings.Cut(e, "="); ok {
			c.Env[i] = k + "=" + move(v)
		}
	}
}

// Kill ends every process.
func (s *sandbox) Kill(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.killAll()
}

func (s *sandbox) killAll() error {
	s.watch.Quit()
	s.effort.Free()
	s.net.close()
	release, err := s.hold()
	if err != nil {
		return nil //nolint:nilerr // it has been closed, so none of its processes lives
	}
	defer release()
	err = s.killFreely()
	if err == nil { // the program may have removed the owner's permissions, which stops the server as well
		_ = unix.Fchmod(s.slot.Dirs[jail.DirWork], 0o700)
	}
	return err
}

// Clear ends every process and keeps the sandbox.
func (s *sandbox) Clear(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, clearLimit)
	defer cancel()
	release, err := s.hold()
	if err != nil {
		return err
	}
	defer release()
	err = s.clearFreely(ctx)
	if err == nil { // as after Kill
		_ = unix.Fchmod(s.slot.Dirs[jail.DirWork], 0o700)
	}
	return err
}

// Provide puts files below ProgramDir, where programs cannot write.
func (s *sandbox) Provide(ctx context.Context, list []backend.ProgramFile) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	release, err := s.hold()
	if err != nil {
		return fmt.Errorf("provide: %w", err)
	}
	defer release()
	dir := files{dir: s.slot.Dirs[jail.DirProgram]}
	for _, f := range list {
		if err := s.orKill(func() error { return asUser(s.slot.UID(), func() error { return dir.makeDirs(path.Dir(f.Name)) }) }); err != nil {
			return fmt.Errorf("provide %s: %w", f.Name, err)
		}
	}
	if err := s.putProgram(list); err != nil {
		return fmt.Errorf("provide: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(list, func(f backend.ProgramFile) bool { return f.Name == s.prepared.driver.Name }) {
		s.prepared.driver = backend.ProgramFile{} // it is replaced, so Start has to write that of its process
	}
	return nil
}

// clearLimit bounds the time in which the processes of a sandbox must end.
const clearLimit = 10 * time.Second

// Near says that the sandbox is on this machine.
func (*sandbox) Near() {}

// Files gives access to the working directory.
func (s *sandbox) Files() backend.Files { return heldFiles{s} }

// Usage returns what the sandbox has used.
func (s *sandbox) Usage(ctx context.Context) (backend.Usage, error) {
	if err := ctx.Err(); err != nil {
		return backend.Usage{}, err
	}
	release, err := s.hold()
	if err != nil {
		return backend.Usage{}, err
	}
	defer release()
	u := s.taken()
	s.mu.Lock()
	defer s.mu.Unlock()
	u.OOMKills += len(s.exceeded)
	u.Exceeded = slices.Clone(s.exceeded)
	return u, nil
}

// taken returns the counts of the control group, or of the watch that replaces it.
func (s *sandbox) taken() backend.Usage {
	if s.group == nil {
		u := s.watch.Usage(s.slot.CPU())
		return backend.Usage{PeakMemory: u.PeakMemory, CPU: u.CPU, PeakTasks: u.PeakTasks, OOMKills: u.OOMKills}
	}
	u := s.group.Usage()
	return backend.Usage{PeakMemory: u.PeakMemory, CPU: u.CPU, PeakTasks: max(u.PeakTasks-1, 1), OOMKills: u.OOMKills}
}

// Close kills all processes and releases everything. Its waits are bounded, and the end of ctx does
// not shorten them.
func (s *sandbox) Close(context.Context) error { return s.end() }

func (s *sandbox) end() error {
	s.closeOnce.Do(func() {
		s.watch.Quit()
		s.effort.Free()
		_ = s.killFreely() // so that callers of Wait return
		s.watch.Stop()
		s.net.close()
		s.use.shut()
		err := s.slot.Close()
		s.mu.Lock()
		if s.child != nil {
			s.child.Release()
			s.child = nil
		}
		s.prepared.close()
		for _, st := range s.streams { // all writers are dead, so the streams end by themselves
			st.close(drainLimit)
		}
		s.mu.Unlock()
		s.b.mu.Lock()
		delete(s.b.live, s)
		s.b.mu.Unlock()
		s.b.objects.Remove(s.objects)
		if s.group != nil && err == nil {
			s.mu.Lock()
			s.kept = s.b.keepGroup(s.group)
			s.mu.Unlock()
		}
		s.closeErr = s.removeAfter(err)
		if s.asked && !s.spec.Terminal {
			s.b.ready.Done(s.key)
			s.b.ready.Fill()
		}
	})
	return s.closeErr
}

// remove releases what a sandbox holds outside its jail.
func (s *sandbox) remove() error {
	s.b.returnTasks(s.spec.MaxTasks)
	s.b.returnTerminals(s.spec)
	s.b.processors.release(&s.pinned)
	var err error
	if s.group != nil && !s.kept {
		err = s.group.Remove()
	}
	err = errors.Join(err, s.removeContainer())
	if s.root != "" {
		err = errors.Join(err, removeTree(s.root), s.lock.Close())
	}
	return err
}

// policyDigest returns the SHA-256 digest of the seccomp filter and of the other policy that all
// sandboxes of a jail share.
func policyDigest(filter []byte, j *jail.Jail) string {
	h := sha256.Sum256(append(slices.Clone(filter), j.Policy()...))
	return hex.EncodeToString(h[:])
}
