package process

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp/internal/watch"
)

// A killed task needs processor time of its own sandbox to end. With a hundredth of a core,
// thousands of tasks take minutes. The processor limit is therefore lifted before anything is
// killed.

// throttle is a processor limit of a sandbox.
type throttle interface {
	// LiftQuota suspends the limit.
	LiftQuota() error
	// Yield gives the sandbox processor time only if nothing else wants it.
	Yield() error
	// RestoreQuota sets the limit again.
	RestoreQuota() error
}

// slowEnd is how long processes may take to end before they yield. A process that closes many
// files of a pipe that has many epoll watches can take minutes in the kernel, where no signal
// reaches it.
const slowEnd = 2 * time.Second

// freely lifts the limits and calls end, which kills processes. If a limit cannot be lifted, end
// only takes longer. If end takes longer than slowEnd, the sandbox yields. restore sets the limits
// again.
func freely(limits []throttle, end func() error) (restore func() error, err error) {
	for _, l := range limits {
		_ = l.LiftQuota()
	}
	var mu sync.Mutex
	over := false // guarded by mu
	slow := time.AfterFunc(slowEnd, func() {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range limits {
			if !over {
				_ = l.Yield()
			}
		}
	})
	err = end()
	slow.Stop()
	mu.Lock()
	over = true
	mu.Unlock()
	return func() error {
		var errs []error
		for _, l := range limits {
			errs = append(errs, l.RestoreQuota())
		}
		return errors.Join(errs...)
	}, err
}

func (s *sandbox) throttles() []throttle {
	if s.watch == nil {
		return s.limitsWith(nil)
	}
	return s.limitsWith(s.watch)
}

// sparing is throttles for who ends only some of the programs.
func (s *sandbox) sparing() []throttle {
	if s.watch == nil {
		return s.limitsWith(nil)
	}
	return s.limitsWith(watch.Sparing{Group: s.watch})
}

// limitsWith returns the limits of the sandbox. without takes the place of a control group; nil: there is no such limit.
func (s *sandbox) limitsWith(without throttle) (limits []throttle) {
	if s.group != nil {
		limits = append(limits, s.group)
	}
	if without != nil {
		limits = append(limits, without)
	}
	return limits
}

// killFreely ends every program for good. It lifts the limits first, unless only init is left and
// the share is at least a whole core.
func (s *sandbox) killFreely() error {
	s.mu.Lock()
	cores := s.spec.CPUCores
	s.mu.Unlock()
	if s.slot.Alone() && cores >= 1 {
		return s.slot.Kill()
	}
	s.dying.Store(true)
	defer s.objects.HoldPipes()()
	_, err := freely(s.throttles(), s.slot.Kill)
	return err
}

// clearFreely ends every program and restores the limits for the next ones. On error the sandbox
// may not be used. Isolation waits meanwhile, so that it never reports a limit that is lifted.
func (s *sandbox) clearFreely(ctx context.Context) error {
	return s.endFreely(s.throttles(), func() error {
		if err := s.slot.Clear(ctx); err != nil {
			return err
		}
		return s.thaw(ctx)
	})
}

// endFreely calls end, which ends some programs of the sandbox, with the limits lifted.
func (s *sandbox) endFreely(limits []throttle, end func() error) error {
	s.quota.Lock()
	defer s.quota.Unlock()
	defer s.objects.HoldPipes()()
	restore, err := freely(limits, end)
	if s.dying.Load() {
		return err
	}
	err = errors.Join(err, restore())
	if s.dying.Load() { // Kill may have lifted the limits before restore set them again
		_, _ = freely(s.throttles(), func() error { return nil })
	}
	return err
}
