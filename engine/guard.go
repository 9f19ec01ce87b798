package engine

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

// secretsOf returns the secrets of a run. They are read when the intent is recorded.
func (e *Engine) secretsOf(x *execution) *guard.Run {
	return e.guard.NewRun(guard.Request{Env: x.req.Env, None: x.req.NoSecrets, Like: x.entries().Like})
}

// inject returns the program's environment with the run's secrets.
func (e *Engine) inject(x *execution) (map[string]string, error) {
	env, err := x.secrets.Inject(x.ctx, x.live.secretsHad())
	if err != nil && x.ctx.Err() != nil {
		err = cancelledError(x.ctx)
	}
	if err != nil || env == nil {
		return x.req.Env, err
	}
	x.injected = true
	e.events.Emit(x.eventsOf().Injected(x.secrets.Used()))
	return env, nil
}

// secretsHad returns the secrets that the session's programs have had; nil for no session.
func (r *liveSession) secretsHad() *guard.Had {
	if r == nil {
		return nil
	}
	return &r.had
}

// masksOf returns the masker for texts of a live session: it masks the secrets of its
// namespace and those that its programs have had.
func (e *Engine) masksOf(ctx context.Context, ns sandboxmcp.Namespace, r *liveSession) (*redact.Masker, error) {
	return e.guard.Secrets(ns, r.secretsHad()).Masks(ctx)
}

// masks returns the masker for texts of a namespace, or of one of its live sessions. The
// masker may be nil, which masks nothing.
func (e *Engine) masks(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (*redact.Masker, error) {
	if id != "" {
		if s, err := e.sessions.Find(ctx, ns, id); err == nil {
			if r, ok := s.Room().(*liveSession); ok {
				return e.masksOf(ctx, ns, r)
			}
		}
	}
	return e.masksOf(ctx, ns, nil)
}

// plainName refuses a name of the caller's choice that contains a secret, because the
// audit log, events and logs show names unmasked. what is the kind of name, for the
// error.
func (e *Engine) plainName(ctx context.Context, ns sandboxmcp.Namespace, what, name string) error {
	masks, err := e.masks(ctx, ns, "")
	if err != nil {
		return err
	}
	return masks.Plain(what, name)
}
