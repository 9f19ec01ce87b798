package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/jail/pool"
	"github.com/sandboxmcp/sandboxmcp/internal/watch"
)

// Backend builds sandboxes on this host's kernel. The first Open finds out which walls it can
// build.
type Backend struct {
	interpreters

	cfg    Config
	log    *slog.Logger
	kernel string

	mu       sync.Mutex
	prepared bool
	strong   bool // namespaces have been made
	lease    *jail.UIDs
	tree     *cgroup.Tree
	noTree   string                              // why there are no cgroups; empty: there are
	finding  chan foundGroups                    // gets the cgroups; nil: nothing is awaited
	noFork   error                               // why the last zygote could not be started or forked; nil: it could
	loaded   bool                                // an attempt to make a snapshot has ended
	noLoad   error                               // why the last snapshot could not be made; nil: it could
	groups   *pool.Pool[struct{}, *cgroup.Group] // of closed sandboxes; nil: none are kept
	ready    *pool.Pool[poolKey, *sandbox]       // empty sandboxes; nil: none are built in advance
	halls    []*hall
	early    *jail.Builder // of the first jail; nil: none was started in advance
	coming   *backend.Spec // of the sandbox that will probably be the first one; nil: it is not known
	swept    sync.Once     // control groups of dead servers were removed

	builds     sync.WaitGroup
	ends       sync.WaitGroup // goroutines that wait for the end of jails
	trials     int
	nextPlain  int
	nextGroup  int
	homes      int
	terminals  int // sandboxes with terminals
	live       map[*sandbox]struct{}
	tasks      int // sum of the limits of all live sandboxes, ready ones included
	hostRoot   func() bool
	closed     bool
	certs      string      // path of the certificate authorities inside sandboxes
	shown      []jail.Tree // the trees that show that file
	forkBounds forkBounds
	objects    *watch.Objects
	shared     jail.Shared // the directory Config.Shown, as it was at first
	versions   sync.Map    // of the interpreters of cfg.Root, by path
	processors processors
}

// New returns the backend. It starts nothing before it is used.
func New(cfg Config) *Backend {
	if cfg.MinTier == "" {
		cfg.MinTier = sandboxmcp.TierL2
	}
	if cfg.UIDs == (UIDRange{}) {
		cfg.UIDs = DefaultUIDs()
	}
	if cfg.PoolIdle <= 0 {
		cfg.PoolIdle = poolIdle
	}
	if cfg.TempDir == "" {
		cfg.TempDir = "/tmp"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Backend{interpreters: newInterpreters(cfg), cfg: cfg, log: cfg.Logger, kernel: kernelRelease(), forkBounds: usualForks, hostRoot: sync.OnceValue(isHostRoot), live: map[*sandbox]struct{}{}}
	b.objects = watch.NewObjects(cfg.testOnlyEpollWatches)
	b.shared = jail.Shared{Host: cfg.Shown, Inside: WorkspaceDir, Writable: cfg.Writable}.Fixed()
	if !cfg.NoPool {
		b.ready = newReadyPool(cfg.PoolIdle, cfg.Eager && (cfg.Containers == nil || b.hostRoot())) // each limit of a container makes a kind of its own
	}
	return b
}

// Name returns "process", or the name of Config.Containers.
func (b *Backend) Name() string {
	if b.cfg.Containers != nil {
		return b.cfg.Containers.Name()
	}
	return Name
}

// Capabilities builds a trial sandbox, unless a jail has passed its trial already, and reports
// which walls it had.
func (b *Backend) Capabilities(ctx context.Context) backend.Capabilities {
	b.mu.Lock()
	var seen *sandboxmcp.Isolation
	if n := len(b.halls); n > 0 {
		seen = b.halls[n-1].seen.Load()
	}
	b.trials++
	id := "trial-" + strconv.Itoa(b.trials)
	b.mu.Unlock()
	if seen != nil {
		return b.capable(*seen)
	}
	sb, err := b.Open(ctx, trialSpec(id))
	if err != nil {
		return backend.Capabilities{Reason: sandboxmcp.AsError(err).Message}
	}
	defer func() { _ = sb.Close(ctx) }()
	iso, err := sb.Isolation(ctx)
	if err != nil {
		return backend.Capabilities{Reason: sandboxmcp.AsError(err).Message}
	}
	return b.capable(iso)
}

func (b *Backend) capable(iso sandboxmcp.Isolation) backend.Capabilities {
	spaces := iso.Tier.AtLeast(sandboxmcp.TierL2) // it has namespaces of its own
	c := backend.Capabilities{Available: true, Isolation: iso, Attach: spaces, Dial: spaces, Freeze: spaces && b.freezes(), Terminal: spaces && b.cfg.Containers == nil}
	if spaces && b.cfg.Containers == nil { // an image need not name the user
		c.Users = []string{jail.InsideUser}
	}
	return c
}

// trialSpec returns the Spec of the smallest sandbox.
func trialSpec(id string) backend.Spec {
	return backend.Spec{ID: id, MemoryBytes: 64 << 20, CPUCores: 1, MaxTasks: 16, WorkBytes: 1 << 20, WorkInodes: 64, TempBytes: 1 << 20}
}

// hall is a jail and the result of its trial.
type hall struct {
	*jail.Jail
	policy func() string  // digest
	trees  []backend.Tree // of its configuration

	users int       // calls of Open that are building in it; guarded by the backend's mu
	used  time.Time // time of the last such call; guarded by the backend's mu

	trial sync.Once
	iso   sandboxmcp.Isolation
	err   error
	seen  atomic.Pointer[sandboxmcp.Isolation] // iso, once it has passed judge

	forks *pool.Pool[string, *forkServer] // nil: programs are not forked
}

// Open returns a ready sandbox, or builds one.
func (b *Backend) Open(ctx context.Context, spec backend.Spec) (backend.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !b.begin() {
		return nil, b.closedError()
	}
	defer b.builds.Done()
	var sb *sandbox
	key := b.keyOf(spec)
	if !spec.Terminal { // no ready sandbox has terminals
		sb = b.tryReady(key, spec) //nolint:contextcheck // the watch of the next one outlives the call
	}
	if sb == nil {
		var err error
		if sb, err = b.place(spec); err != nil {
			if !spec.Terminal {
				b.ready.Done(key)
			}
			b.refused(err)
			return nil, unavailable(err)
		}
	}
	defer b.leave(sb.hall)
	sb.key = key
	if err := b.handOut(sb); err != nil { //nolint:contextcheck // the watch outlives the call
		return nil, err
	}
	h := sb.hall
	if err := h.try(ctx, sb); err != nil {
		_ = sb.Close(ctx)
		b.drop(h)
		return nil, unavailable(err)
	}
	minimum := spec.MinTier
	if minimum == "" {
		minimum = b.cfg.MinTier
	}
	if !h.iso.Tier.AtLeast(minimum) {
		_ = sb.Close(ctx)
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "this machine reaches isolation %s, and %s is demanded", h.iso.Tier, minimum).
			WithHint("run `sandboxmcp doctor` to see which wall is missing, or lower isolation_min")
	}
	sb.prewarm(spec.Prestart) //nolint:contextcheck // what it starts outlives the call
	return sb, nil
}

// try makes the first sandbox of a jail its trial: its walls are read before a program runs behind
// them. The result holds for every caller, so it does not depend on the end of ctx.
func (h *hall) try(ctx context.Context, sb *sandbox) error {
	h.trial.Do(func() {
		if h.iso, h.err = sb.Isolation(context.WithoutCancel(ctx)); h.err == nil {
			h.err = judge(h, h.iso)
		}
		if h.err == nil {
			h.seen.Store(&h.iso)
		}
	})
	return h.err
}

// place builds a sandbox in a suitable jail. The caller calls leave for the jail. If the jail has
// ended, place replaces it once.
func (b *Backend) place(spec backend.Spec) (*sandbox, error) {
	for again := false; ; again = true {
		h, err := b.hallFor(spec.Trees)
		if err != nil {
			return nil, err
		}
		sb, err := b.build(h, spec, forCaller)
		if err != nil {
			b.leave(h)
		}
		if _, ours := errors.AsType[*sandboxmcp.Error](err); err == nil || again || ours {
			return sb, err
		}
		t := time.NewTimer(jailEndLimit)
		select {
		case <-h.Done():
			t.Stop()
			b.drop(h)
		case <-t.C:
			return nil, err
		}
	}
}

// jailEndLimit bounds the wait for the end of a jail whose build failed.
const jailEndLimit = time.Second

// begin registers a build, for which Close waits. It returns false if the backend is closed.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.builds.Add(1)
	}
	return !b.closed
}

func (b *Backend) closedError() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the %s backend is closed", b.Name())
}

func unavailable(err error) error {
	if _, ok := errors.AsType[*sandboxmcp.Error](err); ok {
		return err
	}
	hint := "run `sandboxmcp doctor` to see which wall is missing and how to get it"
	if fix := plainFix(err.Error()); fix != "" {
		hint = fix
	} else if blocksSandboxes(err.Error()) && inContainer("/") {
		hint = containerFix
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the sandbox cannot be built: %s", err).WithHint(hint).WithCause(err)
}

// hallsMost bounds the jails that are kept while no sandbox lives in them.
const hallsMost = 8

// enterLocked keeps a jail open until the caller calls leave.
func (h *hall) enterLocked() {
	h.users++
	h.used = time.Now()
}

func (b *Backend) leave(h *hall) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.users--
}

// If there are too many jails, evictLocked closes the least recently used one that has no
// sandboxes. It closes it in a goroutine.
func (b *Backend) evictLocked() {
	if len(b.halls) <= hallsMost {
		return
	}
	busy := map[*hall]bool{}
	for s := range b.live {
		busy[s.hall] = true
	}
	var old *hall
	for _, h := range b.halls {
		if h.users == 0 && !busy[h] && (old == nil || h.used.Before(old.used)) {
			old = h
		}
	}
	if old == nil {
		return
	}
	b.halls = slices.DeleteFunc(b.halls, func(h *hall) bool { return h == old })
	b.builds.Go(func() {
		if err := old.Close(); err != nil {
			b.log.Warn("a jail stays behind", "error", err)
		}
	})
}

// hallFor returns a jail whose sandboxes can see the trees. The caller calls leave when it no longer
// uses the jail.
func (b *Backend) hallFor(trees []backend.Tree) (*hall, error) {
	whole, _ := split(trees)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, b.closedError()
	}
	b.halls = slices.DeleteFunc(b.halls, func(h *hall) bool {
		select {
		case <-h.Done():
			b.log.Warn("a jail ended; its sandboxes are gone")
			_ = h.Close()
			return true
		default:
			return false
		}
	})
	for _, h := range b.halls {
		if h.Covers(whole) {
			h.enterLocked()
			return h, nil
		}
	}
	if err := checkTrees(trees); err != nil {
		return nil, err
	}
	b.prepareLocked()
	if err := b.checkConfig(); err != nil {
		return nil, err
	}
	base, _ := split(backend.Trees(b.cfg.ReadOnly...))
	all := slices.Concat(base, b.shown, whole)
	slices.SortFunc(all, func(x, y jail.Tree) int {
		return cmp.Or(strings.Compare(x.Host, y.Host), strings.Compare(x.Inside, y.Inside))
	})
	h, err := b.openHall(slices.Compact(all))
	if err != nil {
		return nil, unavailable(err)
	}
	b.halls = append(b.halls, h)
	h.enterLocked()
	b.evictLocked()
	return h, nil
}

// home makes the control group for a jail's own processes, if one is needed. On version 2, only a
// process inside the tree may clone into it. The caller calls the returned function once the jail
// is open.
func (b *Backend) home(cfg *jail.Config) (func(), error) {
	if b.tree == nil || b.tree.Version() != 2 {
		return func() {}, nil
	}
	owner := os.Geteuid()
	if cfg.Mode == jail.ModeRoot {
		owner = cfg.FirstUID
	}
	if err := b.tree.ChownForEntry(owner, owner); err != nil {
		return nil, err
	}
	b.homes++
	g, err := b.tree.New("jail-"+strconv.Itoa(b.homes), cgroup.Limits{})
	if err != nil {
		return nil, err
	}
	entry, err := g.Entry()
	if err != nil {
		return nil, err
	}
	cfg.Cgroup = int(entry.Dir.Fd())
	return func() { _ = entry.Close() }, nil
}

// strongest returns the mode with the strongest walls that this process may have.
func strongest() jail.Mode {
	if isHostRoot() {
		return jail.ModeRoot
	}
	return jail.ModeUser
}

// openHall tries the modes, the strongest first. Once namespaces have been made, a later failure to
// make them is an error and does not lead to weaker walls.
func (b *Backend) openHall(trees []jail.Tree) (*hall, error) {
	if b.cfg.Containers != nil {
		return b.openContainers(trees)
	}
	h, err := b.tryMode(strongest(), trees)
	if err == nil {
		b.strong = true
		return h, nil
	}
	if errors.Is(err, jail.ErrShared) {
		return nil, sharedError(b.cfg.Shown, err)
	}
	if b.strong || b.cfg.Root != "" || !sandboxmcp.TierL1.AtLeast(b.cfg.MinTier) {
		return nil, err
	}
	b.log.Warn("namespaces cannot be made; only Landlock and seccomp will stand", "cause", err)
	plain, plainErr := b.tryMode(jail.ModePlain, trees)
	if errors.Is(plainErr, jail.ErrShared) {
		return nil, sharedError(b.cfg.Shown, plainErr)
	}
	if plainErr != nil {
		return nil, errors.Join(err, plainErr)
	}
	return plain, nil
}

var errUnified = errors.New("the control groups are those of version 2")

func (b *Backend) tryMode(mode jail.Mode, trees []jail.Tree) (*hall, error) {
	if b.cfg.testOnlyNoNamespaces && mode != jail.ModePlain {
		return nil, errors.New("left out")
	}
	contained := mode == jail.ModeContainer
	cfg := jail.Config{Mode: mode, ReadOnly: trees, Root: b.cfg.Root}
	if b.cfg.Shown != "" && !contained {
		cfg.Shared = b.shared
	}
	if !b.cfg.NoPool {
		cfg.Keep = keepMost
	}
	var err error
	if cfg.FirstUID, err = b.firstUIDLocked(); err != nil {
		return nil, err
	}
	ahead := b.finding != nil && !cgroup.Unified() // groups of version 2 have to be known before a jail is opened
	if !ahead {
		b.groupsLocked()
	}
	if err = b.common(&cfg); err != nil {
		return nil, err
	}
	done, err := b.home(&cfg)
	if err != nil {
		return nil, err
	}
	var filter []byte
	cfg.Finish = func(c *jail.Config) error {
		b.groupsLocked()
		if ahead && b.tree != nil && b.tree.Version() == 2 {
			return errUnified
		}
		c.First = b.comingLocked(mode)
		failed := b.setFilters(c)
		filter = slices.Concat(c.Common, c.Filter)
		return failed
	}
	cfg.Builder = b.early
	j, err := jail.Open(cfg)
	done()
	if errors.Is(err, errUnified) { // both versions are mounted
		return b.tryMode(mode, trees)
	}
	if err != nil {
		return nil, err
	}
	h := &hall{Jail: j, policy: sync.OnceValue(func() string { return policyDigest(filter, j) })} // later, because the first sandbox waits for the jail
	for _, t := range trees {
		h.trees = append(h.trees, backend.Tree{Host: t.Host, Inside: t.Inside})
	}
	if b.ready != nil {
		h.forks = newForkPool(b.cfg.PoolIdle)
		b.ends.Go(func() {
			<-h.Done()
			_ = h.forks.Close()
			_ = b.ready.DropIf(func(s *sandbox) bool { return s.hall == h })
		})
	}
	return h, nil
}

// firstUIDLocked returns the first user id of the block that a server of root has leased; otherwise 0.
func (b *Backend) firstUIDLocked() (int, error) {
	if isHostRoot() && b.lease == nil {
		l, err := jail.LeaseUIDs(b.cfg.UIDs.First, b.cfg.UIDs.Last)
		if err != nil {
			return 0, err
		}
		b.lease = l
	}
	if b.lease == nil {
		return 0, nil
	}
	return b.lease.First(), nil
}

// sharedError returns the error for a directory that programs cannot use.
func sharedError(dir string, err error) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "programs cannot use workspace_path %s: %s", sandboxmcp.Quote(dir), err).
		WithHint("set workspace_mode: ro, or choose a directory of an ordinary user on a file system such as ext4, XFS or Btrfs; restart the server after the directory was moved").WithCause(err)
}

// judge returns an error if a wall that the mode requires is missing.
func judge(h *hall, iso sandboxmcp.Isolation) error {
	for _, w := range h.Required() {
		if !jail.Stands(iso.Walls, w) {
			return fmt.Errorf("the wall %q does not stand", w)
		}
	}
	if h.Mode() == jail.ModeContainer && iso.Tier != sandboxmcp.TierL2 {
		return errors.New("the limits of memory, tasks and processor time do not all stand")
	}
	return nil
}

func (b *Backend) drop(h *hall) {
	b.mu.Lock()
	b.halls = slices.DeleteFunc(b.halls, func(x *hall) bool { return x == h })
	b.mu.Unlock()
	_ = h.Close()
}

// Close ends every sandbox, also one that is being built. Its waits are bounded, and the end of ctx
// does not shorten them.
func (b *Backend) Close(context.Context) error {
	b.objects.Stop()
	b.mu.Lock()
	b.closed = true
	halls := b.halls
	b.halls = nil
	b.mu.Unlock()
	var errs []error
	for _, h := range halls {
		errs = append(errs, h.Close()) // this ends everything in the jail, and builds in it fail
	}
	if errors.Join(errs...) == nil {
		b.ends.Wait()
		b.objects.Wait()
	}
	b.builds.Wait()
	errs = append(errs, b.ready.Close())
	b.mu.Lock()
	live := make([]*sandbox, 0, len(b.live))
	for s := range b.live {
		live = append(live, s)
	}
	if b.prepared {
		b.groupsLocked()
	}
	tree, l, groups, builder := b.tree, b.lease, b.groups, b.early
	b.tree, b.lease = nil, nil
	b.mu.Unlock()
	for _, s := range live {
		errs = append(errs, s.end())
	}
	builder.Close()
	b.cfg.Launcher.Close()
	_ = groups.Close()
	if tree != nil {
		b.sweepGroups(tree)
		errs = append(errs, tree.Close())
	}
	l.Release()
	return errors.Join(errs...)
}
