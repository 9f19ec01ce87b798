package process

import (
	"context"
	"errors"
)

// A killed task needs processor time of its own sandbox to end. With a hundredth of a core,
// thousands of tasks take minutes. The processor limit is therefore lifted before anything is
// killed.

// throttle is a processor limit of a sandbox.
type throttle interface {
	// LiftQuota suspends the limit.
	LiftQuota() error
	// RestoreQuota sets it again.
	RestoreQuota() error
}

// freely lifts the limits and calls end, which kills processes. If a limit cannot be lifted, end
// only takes longer. restore sets the limits again.
func freely(limits []throttle, end func() error) (restore func() error, err error) {
	for _, l := range limits {
		_ = l.LiftQuota()
	}
	err = end()
	return func() error {
		var errs []error
		for _, l := range limits {
			errs = append(errs, l.RestoreQuota())
		}
		return errors.Join(errs...)
	}, err
}

func (s *sandbox) throttles() []throttle {
	var limits []throttle
	if s.group != nil {
		limits = append(limits, s.group)
	}
	if s.watch != nil {
		limits = append(limits, s.watch)
	}
	return limits
}

// killFreely ends every program for good. It lifts the limits first, unless only init is left and
// the share is at least a whole core.
func (s *sandbox) killFreely() error {
	if s.slot.Alone() && s.spec.CPUCores >= 1 {
		return s.slot.Kill()
	}
	s.dying.Store(true)
	_, err := freely(s.throttles(), s.slot.Kill)
	return err
}

// clearFreely ends every program and restores the limits for the next ones. On error the sandbox
// may not be used. Isolation waits meanwhile, so that it never reports a limit that is lifted.
func (s *sandbox) clearFreely(ctx context.Context) error {
	s.quota.Lock()
	defer s.quota.Unlock()
	restore, err := freely(s.throttles(), func() error { return s.slot.Clear(ctx) })
	if err == nil {
		err = s.thaw(ctx)
	}
	if s.dying.Load() {
		return err
	}
	err = errors.Join(err, restore())
	if s.dying.Load() { // Kill may have lifted the limits before restore set them again
		_, _ = freely(s.throttles(), func() error { return nil })
	}
	return err
}
