package engine

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/note"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
)

// validateSession completes the session fields of a request. In a live session it takes
// language, backend and limits from the session.
func (e *Engine) validateSession(ctx context.Context, x *execution) error {
	r := &x.req
	if r.SessionID == "" && r.Session == nil {
		return nil
	}
	own, err := session.Complete(r, e.settings().SessionTTL)
	if err != nil {
		return err
	}
	live, err := e.sessions.Find(ctx, x.who.Namespace, r.SessionID)
	switch {
	case err == nil:
		limits, unfit := live.Join(r)
		x.base = &limits
		return unfit
	case sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionNotFound && !own && session.IsMade(r.SessionID): // the session was terminated, or the caller made up the id. An id of this form works as a secret for reading files, so callers may not choose it
		return err
	case x.anew:
	case sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionNotFound:
	default:
		return err
	}
	if !own {
		if err := e.plainName(ctx, x.who.Namespace, "the session id", string(r.SessionID)); err != nil {
			return err
		}
	}
	session.Inherit(r)
	return nil
}

// sessionID returns the id of the session, or nil for a single run.
func (x *execution) sessionID() *sandboxmcp.SessionID {
	if x.req.SessionID == "" {
		return nil
	}
	id := x.req.SessionID
	return &id
}

// claimed is the session of a request, as claim and furnish have set it.
type claimed struct {
	session *session.Session // nil: a single run
	newborn bool             // this request creates the session
	another bool             // it is the session's first in its language, and not the session's first
	share   *queue.Share     // tasks reserved for a session that is being created; nil: none
	live    *liveSession     // nil: no session, or not created yet
}

// claim reserves the request's session for its run, and makes the session's entry if it
// is new.
func (e *Engine) claim(x *execution) error {
	if x.req.SessionID == "" {
		return nil
	}
	info := sandboxmcp.Session{ID: x.req.SessionID, Namespace: x.who.Namespace, Language: x.req.Language, Backend: x.req.Backend, Limits: x.limits, CreatedAt: e.cfg.Now().UTC().Round(0)}
	s, newborn, err := e.sessions.Claim(x.ctx, x.who.Holder, info, x.req.Session.TTL, x.anew)
	if err == nil && newborn {
		if x.share, err = e.queue.Reserve(x.who, x.limits.MaxTasks()); err != nil {
			_ = s.Furnish(x.ctx, nil, sandboxmcp.Session{})
		}
	}
	if err != nil {
		return e.busyWith(x, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x.session, x.newborn = s, newborn
	if !newborn {
		x.live, _ = s.Room().(*liveSession)
	}
	return nil
}

// busyWith adds to session_busy which request is running in the session.
func (e *Engine) busyWith(x *execution, err error) error {
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionBusy {
		return err
	}
	busy := *sandboxmcp.AsError(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, other := range e.live {
		if other.session != nil && other.who.Namespace == x.who.Namespace && other.req.SessionID == x.req.SessionID {
			busy.Fields = maps.Clone(busy.Fields)
			return busy.With("request_id", id).WithHint(note.Busy(note.For(&x.req), id, other.background))
		}
	}
	return busy.WithHint(note.Busy(note.For(&x.req), "", false))
}

// isCell reports whether the request runs in an interpreter that keeps its state. It is called after claim.
func (x *execution) isCell() bool {
	switch {
	case x.session == nil:
		return false
	case x.live == nil:
		return !x.req.Session.Fresh
	default:
		return !x.live.Fresh()
	}
}

// unclaim removes the entry of a new session whose sandbox was not made.
func (e *Engine) unclaim(x *execution) {
	if x.newborn && x.live == nil {
		_ = x.session.Furnish(x.ctx, nil, sandboxmcp.Session{})
		x.share.Release()
	}
}

// place returns the interpreter and the sandbox of a request. It makes the sandbox for a
// single run or a new session. interp is empty for a session that keeps its interpreter.
func (e *Engine) place(x *execution) (interp interpreter.Interpreter, sb backend.Sandbox, err error) {
	if x.live == nil || x.live.Fresh() || !x.live.Has(x.req.Language) {
		if interp, err = e.interps.Find(x.ctx, e.backends[x.req.Backend], x.req.Language); err != nil {
			return interp, nil, err
		}
	}
	if x.session == nil {
		trees, failed := e.shownTrees(x)
		if failed != nil {
			return interp, nil, failed
		}
		if x.holds, err = e.holdTrees(trees); err != nil {
			return interp, nil, err
		}
		interp = e.interps.WithInstalled(interp, trees)
		if sb, err = e.open(x, interp, opening{}); err != nil {
			x.holds()
		}
		return interp, sb, err
	}
	if x.newborn {
		err = e.furnish(x, interp)
	} else if !x.live.Fresh() && !x.live.Has(x.req.Language) {
		err, x.another = x.live.add(x.req.Language, interp), true
	}
	if err == nil {
		err = e.showPackages(x)
	}
	if err != nil {
		return interp, nil, err
	}
	if x.live.Fresh() {
		interp = e.interps.WithInstalled(interp, x.live.installed())
	}
	x.live.Survey(x.ctx)
	return interp, x.live.Sandbox(), nil
}

// furnish makes the sandbox of a new session.
func (e *Engine) furnish(x *execution, interp interpreter.Interpreter) error {
	e.log.Info("session_creating", "session_id", x.req.SessionID, "language", x.req.Language)
	env := map[string]string{"SANDBOX_POLICY": policyText(x.limits, e.egress.OpenTo(x.ctx, e.networkRequest(x)))}
	interp = e.interps.Beside(x.ctx, e.backends[x.req.Backend], interp)
	prog := interp.Program(sandboxmcp.Request{Language: x.req.Language, Env: env}, nil)
	prog.Preload, prog.Check = e.interps.Preload(x.req, interp)
	var first *backend.Prestart
	if plan, err := kernel.PlanInterpreter(prog); err == nil && !x.req.Session.Fresh { // if it fails, so does the run, with this error
		first = plan.Prestart
	}
	trees, err := e.shownTrees(x)
	var sb backend.Sandbox
	release := func() {}
	if err == nil {
		if release, err = e.holdTrees(trees); err == nil {
			defer func() {
				if x.live == nil {
					release()
				}
			}()
		}
	}
	if err == nil { // packages are no part of prog, so that sessions share what their interpreters are forked from
		sb, err = e.open(x, e.interps.WithInstalled(interp, trees), opening{first: first})
	}
	if err != nil {
		return errors.Join(err, x.session.Furnish(x.ctx, nil, sandboxmcp.Session{}))
	}
	iso, err := sb.Isolation(x.ctx)
	if err == nil {
		err = e.bridged.Prepare(x.ctx, x.who.Namespace, sb)
	}
	if err != nil {
		if x.ctx.Err() != nil {
			err = cancelledError(x.ctx)
		}
		return errors.Join(err, sb.Close(context.WithoutCancel(x.ctx)), x.session.Furnish(x.ctx, nil, sandboxmcp.Session{}))
	}
	x.share.Take(x.ticket)
	live := session.NewLive(x.session, session.LiveConfig{Sandbox: sb, Program: prog, Fresh: x.req.Session.Fresh, Copies: e.copies, Logger: e.log})
	r := &liveSession{
		Live: live, share: x.share, trees: interp.Trees, env: env, offline: x.req.Session.Offline,
		interps:  map[sandboxmcp.Language]interpreter.Interpreter{x.req.Language: interp},
		attached: trees, hold: e.holdTrees, releases: []func(){release},
	}
	info := x.session.Info()
	info.Isolation, info.Limits = &iso, x.limits
	// A session that cannot be recorded is not created.
	if err := e.note(x.ctx, "create_session", info, x.who.Actor, string(info.Language)); err != nil {
		return errors.Join(err, sb.Close(context.WithoutCancel(x.ctx)), x.session.Furnish(x.ctx, nil, sandboxmcp.Session{}))
	}
	if err := x.session.Furnish(x.ctx, r, info); err != nil {
		return err
	}
	e.mu.Lock()
	x.live = r
	e.mu.Unlock()
	e.log.Info("session_created", "session_id", info.ID, "tier", iso.Tier, "max_ram_mb", x.limits.MaxRAMMB)
	e.events.Emit(event.Session(info, ""))
	return nil
}

// policyText returns SANDBOX_POLICY: JSON in which a session's code can read its limits,
// writable directories and open domains.
func policyText(l sandboxmcp.Limits, open []string) string {
	text, err := json.Marshal(map[string]any{
		"network": map[string]any{"allowed": open}, "writable": []string{backend.WorkDir, backend.TempDir}, "limits": l,
	})
	if err != nil {
		return "{}"
	}
	return string(text)
}

// note records an action on a session.
func (e *Engine) note(ctx context.Context, action string, s sandboxmcp.Session, actor, detail string) error {
	_, err := e.audit.Append(context.WithoutCancel(ctx), sandboxmcp.AuditEntry{
		Action: action, Phase: sandboxmcp.PhaseOutcome, SessionID: s.ID, Language: s.Language, Namespace: s.Namespace, Actor: actor, Detail: detail,
	})
	return err
}

// CreateSession creates a session: a sandbox that lives until it was not used for its
// time-to-live. The id of an expired session may be used again.
func (e *Engine) CreateSession(ctx context.Context, c sandboxmcp.Caller, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	x := &execution{order: order{anew: true, who: c, req: sandboxmcp.Request{
		Language: spec.Language, Limits: spec.Limits, Strict: spec.Strict, Modest: spec.Modest, Backend: spec.Backend,
		SessionID: spec.ID, Session: &spec, Code: "-", // validate requires code; it is not run
	}}}
	if err := e.validate(ctx, x); err != nil {
		return sandboxmcp.Session{}, err
	}
	if x.base != nil {
		return sandboxmcp.Session{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "session %s is there already", sandboxmcp.Quote(string(x.req.SessionID))).
			WithHint("use it as it is, terminate it first, or choose another id")
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return sandboxmcp.Session{}, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the server is shutting down")
	}
	e.work.Add(1)
	e.mu.Unlock()
	defer e.work.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.ctx, func() { cancel(context.Canceled) })() //nolint:contextcheck // Close ends what waits
	x.ctx = ctx
	interp, err := e.interps.Find(ctx, e.backends[x.req.Backend], x.req.Language)
	if err != nil {
		return sandboxmcp.Session{}, err
	}
	if err := e.claim(x); err != nil {
		return sandboxmcp.Session{}, err
	}
	defer x.session.Release()
	if !x.newborn { // another request created it meanwhile
		return sandboxmcp.Session{}, sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "session %s is being made by another request", sandboxmcp.Quote(string(x.req.SessionID)))
	}
	defer e.unclaim(x)
	x.ticket = e.queue.EnterBeside(x.who)
	defer x.ticket.Release()
	if x.ticket.Wait(ctx, x.tasks()) != nil {
		return sandboxmcp.Session{}, cancelledError(ctx)
	}
	if err := e.furnish(x, interp); err != nil { //nolint:contextcheck // x has it
		return sandboxmcp.Session{}, sandboxmcp.AsError(err)
	}
	info := x.session.Info()
	info.Status, info.Clamped = sandboxmcp.SessionIdle, x.clamped
	return info, nil
}

// TerminateSession ends a session with everything in it, and frees its id. It cancels a
// run in a session that keeps its interpreter. While a run is going in a session of
// single runs, it fails with session_busy.
func (e *Engine) TerminateSession(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	c, err := e.caller(c)
	if err != nil {
		return err
	}
	force := false
	if live, err := e.sessions.Find(ctx, c.Namespace, id); err == nil {
		r, ok := live.Room().(*liveSession)
		force = ok && !r.Fresh()
	}
	return e.endSession(ctx, c, id, force)
}

// CloseSession is TerminateSession, but never ends a run: while one is going it fails
// with session_busy. A run that begins at the same time finds the session either intact
// or gone.
func (e *Engine) CloseSession(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	c, err := e.caller(c)
	if err != nil {
		return err
	}
	return e.endSession(ctx, c, id, false)
}

func (e *Engine) endSession(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, force bool) error {
	if _, err := sandboxmcp.ParseSessionID(string(id)); err != nil {
		return err
	}
	s, err := e.sessions.Remove(ctx, c.Namespace, id, force)
	if err != nil && s == nil {
		return err
	}
	e.log.Info("session_destroying", "session_id", id)
	e.cancelIn(ctx, s)
	info := s.Info()
	err = errors.Join(err, s.Room().Close(context.WithoutCancel(ctx)))
	e.log.Info("session_destroyed", "session_id", id)
	err = errors.Join(err, e.note(ctx, "kill_session", info, c.Actor, string(info.Language)))
	e.events.Emit(event.Session(info, event.GoneTerminated))
	return err
}

// endLimit is how long the end of a session waits for that of its run.
const endLimit = 5 * time.Second

// cancelIn cancels the run in a session, and waits up to endLimit for its end.
func (e *Engine) cancelIn(ctx context.Context, s *session.Session) {
	e.mu.Lock()
	var ends []chan struct{}
	for _, x := range e.live {
		if x.session == s {
			x.cancel(errAsked)
			ends = append(ends, x.done)
		}
	}
	e.mu.Unlock()
	t := time.NewTimer(endLimit)
	defer t.Stop()
	for _, done := range ends {
		select {
		case <-done:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Sessions lists the live sessions. It accepts EveryNamespace.
func (e *Engine) Sessions(_ context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Session, error) {
	return e.sessions.List(e.listed(c)), nil
}

// Inspect returns the state of a namespace and, if id is not empty, the files and
// environment of that session.
func (e *Engine) Inspect(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) (sandboxmcp.State, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.State{}, err
	}
	ns := c.Namespace
	inForce, err := e.limits.InForce(ctx, ns)
	if err != nil {
		return sandboxmcp.State{}, err
	}
	st := sandboxmcp.State{
		Namespace: ns, VaultKeys: []string{}, Sessions: e.sessions.List(ns), Env: anyEnv(kernel.Surroundings()), Limits: inForce,
		Files: []sandboxmcp.SessionFile{},
	}
	if st.Egress, err = e.egressState(ctx, ns, id); err != nil {
		return st, err
	}
	if err = e.inspectVault(ctx, &st); err != nil {
		return st, err
	}
	if id == "" {
		return st, nil
	}
	files, err := e.SessionFiles(ctx, c, id)
	if err != nil {
		return st, err
	}
	st.Files = files
	if s, err := e.sessions.Find(ctx, ns, id); err == nil {
		st.Limits = s.Info().Limits
		if r, ok := s.Room().(*liveSession); ok {
			st.Env = anyEnv(r.Environ())
		}
	}
	return st, nil
}

func anyEnv(env map[string]string) map[string]any {
	all := make(map[string]any, len(env))
	for k, v := range env {
		all[k] = v
	}
	return all
}

// expired is called for each session that has expired.
func (e *Engine) expired(s sandboxmcp.Session) {
	e.log.Info("session_expired", "session_id", s.ID)
	if err := e.note(e.ctx, "session_expired", s, "sweep", string(s.Language)); err != nil {
		e.log.Error("record an expired session", "error", err)
	}
	e.events.Emit(event.Session(s, event.GoneExpired))
}
