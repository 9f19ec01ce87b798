package process

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Ready sandboxes are built before a caller opens one. They are empty: no program of a caller was
// ever started in them. They are built one at a time after another sandbox was closed, and each is
// handed out once.

// poolKey is every field of a Spec that affects how a sandbox is built. Two Specs with the same key
// differ only in ID and MinTier, and in the limits that are set when a sandbox is handed out, see setLater.
// The tier is checked when a sandbox is handed out.
type poolKey struct {
	memory, workBytes, workInodes, tempBytes int64
	cores                                    float64
	tasks                                    int
	cpuTime                                  time.Duration
	stays, apart                             bool
	dirs, image, hint, loads                 string
}

// These stand in a poolKey for a limit that is set when a sandbox is handed out. They are not 0, which means no limit.
// A sandbox that may have many tasks is a kind of its own, because jail.Slot.LimitCrowd is called when it is built.
const (
	setLater      = -1
	setLaterCrowd = -2 // many tasks
)

func (b *Backend) keyOf(s backend.Spec) poolKey {
	most, grouped := b.resizes()
	return b.keyFor(s, most, grouped)
}

// keyFor is keyOf with the result of resizes.
func (b *Backend) keyFor(s backend.Spec, most ready, grouped bool) poolKey {
	key := poolKey{s.MemoryBytes, s.WorkBytes, s.WorkInodes, s.TempBytes, s.CPUCores, s.MaxTasks, s.CPUTime, s.Stays, s.Apart && b.cfg.Shown != "", treeKey(s.Trees), s.Image, s.Hint, s.Loads}
	if most == (ready{}) {
		return key
	}
	if 0 < s.MemoryBytes && s.MemoryBytes <= most.memory {
		key.memory, key.workBytes = setLater, setLater
		if !grouped { // tempBytes depends on the memory
			key.tempBytes = setLater
		}
	}
	if 0 < s.MaxTasks && s.MaxTasks <= most.tasks && (grouped || s.Loads == "") { // otherwise package code could start more than are reserved
		key.tasks = setLater
		if jail.Crowd(s.MaxTasks) {
			key.tasks = setLaterCrowd
		}
	}
	if 0 < s.CPUTime && s.CPUTime <= most.cpuTime {
		key.cpuTime = setLater
	}
	if s.CPUCores > 0 && grouped { // otherwise the sandbox is pinned to processors when it is built
		key.cores = setLater
	}
	return key
}

// ready are limits of the processes in a ready sandbox, which may run code of packages. They can only be lowered.
// So a request gets such a sandbox only if its own limits are not above them.
type ready struct {
	memory  int64
	tasks   int
	cpuTime time.Duration
}

var (
	// Until a sandbox is handed out, its control group limits memory and tasks to those of the last request.
	readyInGroup = ready{math.MaxInt64, 1 << 15, 24 * time.Hour}

	// Without a control group the watch does so, which does not limit tasks. So a sandbox in which package code may run has no
	// other limit of tasks. dataBytes is derived from both.
	readyWatched = ready{4 << 30, 512, 24 * time.Hour}
)

// resizes returns the limits of ready sandboxes whose limits of memory, tasks and CPU time, and the size of their
// directories, which depends on the memory, can be set when they are handed out. Otherwise it returns zero. grouped
// says that control groups limit them. In a control group of version 2 the limits are set in other ways.
func (b *Backend) resizes() (most ready, grouped bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.resizesLocked()
}

func (b *Backend) resizesLocked() (most ready, grouped bool) {
	if b.cfg.Containers != nil || b.closed {
		return ready{}, false
	}
	b.groupsLocked()
	switch {
	case b.tree == nil:
		return readyWatched, false
	case b.tree.Version() == 1:
		return readyInGroup, true
	}
	return ready{}, false
}

// resize gives a ready sandbox the limits of spec and the size of its directories. It reads them
// back, except for the limit of cores, which is read when the walls are observed. On error the sandbox
// must not be used.
func (s *sandbox) resize(spec backend.Spec) error {
	group := spec.MemoryBytes != s.spec.MemoryBytes || spec.CPUCores != s.spec.CPUCores || spec.MaxTasks != s.spec.MaxTasks
	room, lowered := s.roomFor(spec), s.lowers(spec)
	if !group && room == (jail.Room{}) && lowered == (jail.Lowered{}) {
		return nil
	}
	if m := s.hall.Mode(); m != jail.ModeRoot && m != jail.ModeUser || s.group == nil && spec.CPUCores != s.spec.CPUCores {
		return errors.ErrUnsupported
	}
	if group && s.group != nil {
		if err := s.group.Change(cgroup.Limits{MemoryBytes: spec.MemoryBytes, CPUCores: spec.CPUCores, MaxTasks: spec.MaxTasks + 1}); err != nil {
			return err
		}
	}
	if room != (jail.Room{}) {
		if err := s.slot.Resize(room); err != nil {
			return err
		}
	}
	if lowered != (jail.Lowered{}) {
		if err := s.slot.Lower(lowered); err != nil {
			return err
		}
	}
	return s.slot.LimitCrowd(spec.MaxTasks)
}

// roomFor returns the sizes for a Spec that the directories of a ready sandbox do not have yet.
func (s *sandbox) roomFor(spec backend.Spec) (r jail.Room) {
	if size := workBytes(spec); size != workBytes(s.spec) {
		r.WorkBytes = max(size, 1)
	}
	if size := tempBytes(spec); s.group == nil && size != tempBytes(s.spec) {
		r.TempBytes = max(size, 1)
	}
	return r
}

// lowers returns the limits of a Spec that the processes of a ready sandbox do not have yet.
func (s *sandbox) lowers(spec backend.Spec) (l jail.Lowered) {
	if spec.CPUTime != s.spec.CPUTime {
		l.CPUSeconds = cpuSeconds(spec)
	}
	if spec.MaxTasks != s.rlimitTasks {
		l.MaxTasks = spec.MaxTasks
	}
	if size := dataBytes(spec); s.group == nil && size != s.rlimitData {
		l.DataBytes = size
	}
	if l != (jail.Lowered{}) {
		l.Ran = s.spec.Loads != ""
	}
	return l
}

// loosen gives a sandbox that is built ahead the limits that resize lowers. Its arguments are the result of resizes.
func (s *sandbox) loosen(most ready, grouped bool) {
	key := s.b.keyFor(s.spec, most, grouped)
	memory := s.spec.MemoryBytes
	if key.cpuTime == setLater {
		s.spec.CPUTime = most.cpuTime
	}
	if key.tasks < 0 {
		s.rlimitTasks = most.tasks
	}
	if key.memory == setLater && !grouped {
		memory = most.memory
	}
	s.rlimitData = dataBytes(backend.Spec{MemoryBytes: memory, MaxTasks: s.rlimitTasks})
}

// cpuSeconds returns the limit of the processor time of a process, in whole seconds. It is rounded up, because 0 means no limit.
func cpuSeconds(spec backend.Spec) int64 { return int64(math.Ceil(spec.CPUTime.Seconds())) }

// workBytes returns the size of the working directory, whose files count as memory.
func workBytes(spec backend.Spec) int64 { return min(spec.WorkBytes, spec.MemoryBytes/2) }

// tempBytes returns the size of the directories of temporary files, where there is no control group.
func tempBytes(spec backend.Spec) int64 { return min(spec.TempBytes, spec.MemoryBytes/4) }

// fillDelay is the delay between handing out a sandbox of a session and building the next one. After
// it, the request has probably been answered.
const fillDelay = 50 * time.Millisecond

// prospect is what can be prepared in a ready sandbox for its program. It is derived from the last
// program of the key.
type prospect struct {
	fork     string           // key of the fork server that the program could be forked from
	load     string           // key of the Load that the fork loads
	prepared prepared         // what that program needs besides
	ahead    *backend.Process // process that could be started in advance; it contains no values of a caller
}

// gone reports whether the sandbox has ended. It must not be called after the sandbox is closed.
func (s *sandbox) gone() bool { return s.slot.Lost() }

// holdLive is hold for what cannot be done after Kill.
func (s *sandbox) holdLive() (release func(), err error) {
	release, err = s.hold()
	if err == nil && (s.dying.Load() || s.slot.Dead()) {
		release()
		return nil, jail.ErrEnded
	}
	return release, err
}

// expect records how to prepare the next sandbox of the key.
func (s *sandbox) expect(next prospect) {
	s.b.ready.Expect(s.key, s.b.builder(s.spec, next))
}

// builder returns a function that builds a ready sandbox. The function returns false if no sandbox
// can be built now.
func (b *Backend) builder(spec backend.Spec, next prospect) func() (*sandbox, bool) {
	return func() (*sandbox, bool) {
		h := b.standing(spec.Trees)
		if h == nil { // no jail is made only for a ready sandbox
			return nil, false
		}
		s, err := b.build(h, spec, forLater)
		if err != nil {
			b.log.Debug("no sandbox is made ready", "error", err)
			return nil, false
		}
		sound := (next.fork == "" || s.readyFork(next)) && (next.ahead == nil || s.startAhead(*next.ahead, false))
		if !sound {
			_ = s.end()
		}
		return s, sound
	}
}

// standing returns a jail in which a sandbox of tier L2 or better has passed its trial, or
// nil.
func (b *Backend) standing(trees []backend.Tree) *hall {
	whole, _ := split(trees)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.halls {
		if h.Mode() != jail.ModePlain && h.seen.Load() != nil && h.Covers(whole) {
			return h
		}
	}
	return nil
}

// tryReady returns a ready sandbox or nil. The caller calls leave for the sandbox's jail.
func (b *Backend) tryReady(key poolKey, spec backend.Spec) *sandbox {
	s, ok := b.ready.Take(key, b.builder(spec, prospect{}))
	if !ok {
		return nil
	}
	if waited := s.waits.Swap(false); !waited && s.objects != nil { // the watch is about to end package code in it
		_ = s.end()
		return nil
	}
	b.mu.Lock()
	stands := slices.Contains(b.halls, s.hall)
	if stands {
		s.hall.enterLocked()
	}
	b.mu.Unlock()
	if !stands { // its jail is being closed
		_ = s.end()
		return nil
	}
	b.exchangeTasks(s.spec.MaxTasks, spec.MaxTasks)
	err := s.resize(spec)
	given := spec
	if err != nil {
		given = s.spec
		given.MaxTasks = spec.MaxTasks // so many are reserved
	}
	s.give(given)
	if err != nil {
		b.log.Debug("a ready sandbox is not used", "error", err)
		_ = s.end()
		b.leave(s.hall)
		return nil
	}
	return s
}

// give replaces the Spec of a ready sandbox. It does not wait for the watch, which may be counting in the sandbox
// or ending its programs.
func (s *sandbox) give(spec backend.Spec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec = spec
}

// handOut gives a sandbox to a caller, who closes it. From then on its limits and kernel objects
// are watched.
func (b *Backend) handOut(s *sandbox) error {
	s.asked = true
	s.watch.Restart(s.spec.MemoryBytes)
	if s.spec.Stays && b.ready != nil { // the next one may be requested before this one is closed
		time.AfterFunc(fillDelay, b.ready.Fill)
	}
	s.watchOver()
	b.mu.Lock()
	closed := b.closed
	b.live[s] = struct{}{}
	b.mu.Unlock()
	if closed {
		_ = s.end()
		return b.closedError()
	}
	return nil
}
