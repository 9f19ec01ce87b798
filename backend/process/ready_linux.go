package process

import (
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// Ready sandboxes are built before a caller opens one. They are empty: no program of a caller was
// ever started in them. They are built one at a time after another sandbox was closed, and each is
// handed out once.

// poolKey is every field of a Spec that affects how a sandbox is built. Two Specs with the same key
// differ only in ID and MinTier. The tier is checked when a sandbox is handed out.
type poolKey struct {
	memory, workBytes, workInodes, tempBytes int64
	cores                                    float64
	tasks                                    int
	cpuTime                                  time.Duration
	stays                                    bool
	dirs, hint, loads                        string
}

func keyOf(s backend.Spec) poolKey {
	return poolKey{s.MemoryBytes, s.WorkBytes, s.WorkInodes, s.TempBytes, s.CPUCores, s.MaxTasks, s.CPUTime, s.Stays, treeKey(s.Trees), s.Hint, s.Loads}
}

// fillDelay is the delay between handing out a sandbox of a session and building the next one. After
// it, the request has probably been answered.
const fillDelay = 50 * time.Millisecond

// prospect is what can be prepared in a ready sandbox for its program. It is derived from the last
// program of the key.
type prospect struct {
	fork  string           // key of the fork server that the program could be forked from
	load  string           // key of the Load that the fork loads
	ahead *backend.Process // process that could be started in advance; it contains no values of a caller
}

// gone reports whether the sandbox has ended. It must not be called after the sandbox is closed.
func (s *sandbox) gone() bool { return s.slot.Ended() || s.hall.Ended() }

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
	s.b.ready.Expect(keyOf(s.spec), s.b.builder(s.spec, next))
}

// builder returns a function that builds a ready sandbox. The function returns false if no sandbox
// can be built now.
func (b *Backend) builder(spec backend.Spec, next prospect) func() (*sandbox, bool) {
	return func() (*sandbox, bool) {
		h := b.standing(spec.Trees)
		if h == nil { // no jail is made only for a ready sandbox
			return nil, false
		}
		s, err := b.build(h, spec, true)
		if err != nil {
			b.log.Debug("no sandbox is made ready", "error", err)
			return nil, false
		}
		sound := (next.fork == "" || s.readyFork(next.fork, next.load)) && (next.ahead == nil || s.startAhead(*next.ahead))
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
func (b *Backend) tryReady(spec backend.Spec) *sandbox {
	s, ok := b.ready.Take(keyOf(spec), b.builder(spec, prospect{}))
	if !ok {
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
	s.spec = spec
	return s
}

// handOut gives a sandbox to a caller, who closes it. From then on its limits and kernel objects
// are watched.
func (b *Backend) handOut(s *sandbox) error {
	s.asked = true
	if s.spec.Stays && b.ready != nil { // the next one may be requested before this one is closed
		time.AfterFunc(fillDelay, b.ready.Fill)
	}
	s.startWatch()
	b.mu.Lock()
	closed := b.closed
	b.live[s] = struct{}{}
	b.mu.Unlock()
	s.countObjects()
	if closed {
		_ = s.end()
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the process backend is closed")
	}
	return nil
}
