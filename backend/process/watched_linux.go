package process

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
	"github.com/sandboxmcp/sandboxmcp/internal/watch"
)

// watchOver begins to enforce the sandbox's limits and to count its kernel objects, unless that has begun. It is
// called before package code runs in a sandbox, and when the sandbox is handed out.
func (s *sandbox) watchOver() {
	if s.objects != nil {
		return
	}
	s.objects = &watch.Target{ // before the watches start, which read it when they end programs
		Slot: s.slot, Group: s.group, Plain: s.hall.Mode() == jail.ModePlain, Shares: s.sharesUser(),
		Hold: s.hold, Pace: s.effort.Pace, Spend: s.effort.Spend, End: s.endFor, Over: s.overAhead, Waits: s.waits.Load,
	}
	s.startWatch()
	s.objects.Watch = s.watch
	s.b.objects.Add(s.objects) // end removes it
	s.slot.OnWatches(func() { s.b.objects.GrantWatches(s.objects) })
}

// startWatch enforces the sandbox's limits if it has no cgroup.
func (s *sandbox) startWatch() {
	if s.group != nil {
		return
	}
	limits := watch.Limits{MemoryBytes: s.spec.MemoryBytes, MaxTasks: s.spec.MaxTasks, Waits: s.waits.Load()}
	if cores := s.spec.CPUCores; cores != float64(wholeCores(cores)) {
		limits.Cores = cores
	}
	s.watch = watch.StartGroup(s.slot, s.hall.Mode(), limits, s.endFor)
}

// What package code may use in a ready sandbox. Loading packages takes a tenth of that.
const (
	aheadCPU    = time.Second
	aheadMemory = 128 << 20
)

// overAhead returns what package code has used too much of in a ready sandbox, or "". It does so once.
func (s *sandbox) overAhead() (excess string) {
	if !s.waits.Load() {
		return ""
	}
	switch u := s.taken(); {
	case u.CPU > aheadCPU:
		excess = "the processor before its program began"
	case u.PeakMemory > aheadMemory:
		excess = "memory before its program began"
	}
	if excess != "" && !s.waits.CompareAndSwap(true, false) { // tryReady has taken it meanwhile
		return ""
	}
	return excess
}

// spoiled reports whether a ready sandbox has ended, or package code in it has met a limit. The result of a program
// in such a sandbox would say that the program has met the limit.
func (s *sandbox) spoiled() bool {
	if s.gone() || s.objects == nil {
		return s.gone()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.exceeded) > 0 || s.taken().OOMKills > 0
}

// sharesUser reports whether the sandbox's programs have the server's host user.
func (s *sandbox) sharesUser() bool { return s.slot.UID() == os.Geteuid() }

// If err says that the kernel refused to watch a descriptor for the server, refused requests a
// count of the epoll watches.
func (b *Backend) refused(err error) {
	if errors.Is(err, jail.ErrNotPolled) {
		b.objects.Short()
	}
}

// endFor ends the programs of the sandbox because of what they hold or use too much of. It lifts
// the processor limit, so that a small share does not delay it.
func (s *sandbox) endFor(excess string) {
	release, err := s.hold()
	if err != nil {
		return
	}
	defer release()
	s.mu.Lock()
	s.exceeded = append(s.exceeded, excess)
	id := s.spec.ID
	s.mu.Unlock()
	s.b.log.Warn("a sandbox holds or uses too much; its programs are ended", "sandbox", id, "held", excess)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:forbidigo // no caller waits for the watch
	defer cancel()
	if s.clearFreely(ctx) != nil {
		_ = s.killFreely()
	}
}

// dataBytes returns the limit on the memory that a process may write to, used or not, where there is no control group. The
// watch enforces the memory limit. An interpreter must be able to start, and each thread reserves a stack, of which it uses
// little.
func dataBytes(spec backend.Spec) int64 {
	const interpreter, stack, mostStacks = 256 << 20, 8 << 20, 512
	return max(spec.MemoryBytes, interpreter) + int64(min(spec.MaxTasks, mostStacks))*stack
}
