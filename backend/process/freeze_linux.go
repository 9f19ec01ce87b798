package process

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/jail"
)

// A sandbox is frozen by the freezer of cgroup version 2. SIGKILL ends frozen processes. Init is
// not frozen: it ends with the server, and the kernel then kills everything in its pid namespace.
// Tier L1 has no such namespace, so its sandboxes cannot be frozen.

// freezeLimit bounds the time to freeze or thaw a sandbox.
const freezeLimit = 10 * time.Second

// freezes reports whether sandboxes with namespaces can be frozen.
func (b *Backend) freezes() bool {
	b.mu.Lock()
	tree := b.tree
	b.mu.Unlock()
	return tree != nil && tree.Freezes()
}

func (s *sandbox) canFreeze() error {
	if s.group == nil || s.hall.Mode() == jail.ModePlain || !s.b.freezes() {
		return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "sandboxes cannot be frozen here").
			WithHint("freezing needs namespaces, and cgroup version 2 or both versions side by side")
	}
	return nil
}

func errEnded() error {
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the sandbox has ended")
}

// holdToFreeze holds the slot for Freeze or Thaw until release is called. It fails where
// sandboxes cannot be frozen.
func (s *sandbox) holdToFreeze(ctx context.Context) (release func(), err error) {
	if err = ctx.Err(); err != nil {
		return nil, err
	}
	if err = s.canFreeze(); err != nil {
		return nil, err
	}
	return s.hold()
}

// Freeze stops every process of the sandbox.
func (s *sandbox) Freeze(ctx context.Context) error {
	release, err := s.holdToFreeze(ctx)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, freezeLimit)
	defer cancel()
	if err = s.fallAsleep(ctx); err != nil {
		return err
	}
	defer s.freezing.Unlock()
	if s.gone() || s.dying.Load() {
		return errEnded()
	}
	s.frozen.Store(true)
	if err = s.slot.Settle(ctx); err == nil {
		err = s.group.Freeze(ctx, s.slot.PID())
	}
	if err == nil {
		return nil
	}
	if s.thawHeld(context.WithoutCancel(ctx)) != nil { // it must not stay partly frozen
		_ = s.killFreely()
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the sandbox cannot be frozen: %s", err).WithCause(err)
}

// Thaw continues the processes of a frozen sandbox.
func (s *sandbox) Thaw(ctx context.Context) error {
	release, err := s.holdToFreeze(ctx)
	if err != nil {
		return err
	}
	defer release()
	if s.gone() {
		return errEnded()
	}
	return s.thaw(ctx)
}

// thaw is Thaw without its checks. It waits only if the sandbox is frozen or being frozen.
func (s *sandbox) thaw(ctx context.Context) error {
	if !s.frozen.Load() {
		return nil
	}
	s.freezing.Lock()
	defer s.freezing.Unlock()
	return s.thawHeld(ctx)
}

// thawHeld is thaw for a caller that holds freezing.
func (s *sandbox) thawHeld(ctx context.Context) error {
	if !s.frozen.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, freezeLimit)
	defer cancel()
	if err := s.group.Thaw(ctx); err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the sandbox cannot be thawed: %s", err).WithCause(err)
	}
	s.frozen.Store(false)
	return nil
}

// fallAsleep waits until no process is being started, and then locks freezing. Meanwhile it
// does not delay the start of other processes.
func (s *sandbox) fallAsleep(ctx context.Context) error {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for !s.freezing.TryLock() {
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// stayAwake keeps the sandbox from being frozen until done is called. If the sandbox is frozen, it
// fails.
func (s *sandbox) stayAwake() (done func(), err error) {
	s.freezing.RLock()
	if s.frozen.Load() {
		s.freezing.RUnlock()
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the sandbox is frozen").WithHint("thaw it first")
	}
	return s.freezing.RUnlock, nil
}
