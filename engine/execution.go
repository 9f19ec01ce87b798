package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// order is a request as validate has completed it. Later, inject gives req a copy of its
// environment with secrets; nothing else changes.
type order struct {
	who        sandboxmcp.Caller  // namespace and actor filled in
	req        sandboxmcp.Request // id, language, backend and file name filled in
	base       *sandboxmcp.Limits // limits of the live session; nil: those of the namespace and the settings
	limits     sandboxmcp.Limits  // in force
	clamped    []string
	codeSHA256 string
	background bool
	anew       bool // an expired id may be used again
}

// execution is one request from begin to finish.
type execution struct {
	order
	claimed

	ticket  *queue.Ticket   // nil: not queued yet; the engine's mu guards it until it is set
	ctx     context.Context //nolint:containedctx // its own life: the caller's, or the engine's for a background run
	cancel  context.CancelCauseFunc
	release func() bool // stops watching the engine's context
	done    chan struct{}

	network *gateway.Run // which hosts it may reach, and the network of its sandbox
	secrets *guard.Run   // nil before the intent is recorded
	run     *run.Run     // nil: it has not begun to run; set with the engine's mu held

	received, admitted time.Time

	res sandboxmcp.Result // set when done is closed
	err error
}

// begin validates a request, completes it and adds it to e.live. A background request
// enters the queue here, because its caller is told its place at once. begin has no
// effect outside the engine.
func (e *Engine) begin(ctx context.Context, c sandboxmcp.Caller, req sandboxmcp.Request, background bool) (*execution, error) {
	x := &execution{order: order{who: c, req: req, background: background}, done: make(chan struct{}), received: e.cfg.Now()}
	if err := e.validate(ctx, x); err != nil {
		return nil, err
	}
	if err := e.store.CheckSpace(); err != nil {
		return nil, err
	}
	if req.ID != "" { // the caller chose it: a stored run may have it
		if _, err := e.keeper.Load(ctx, x.who.Namespace, req.ID, false); err == nil {
			return nil, takenError(req.ID)
		}
	}
	if background { // it outlives its caller
		ctx = context.WithoutCancel(ctx)
	}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		x.cancel(nil)
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the server is shutting down")
	}
	if _, taken := e.live[x.req.ID]; taken {
		x.cancel(nil)
		return nil, takenError(x.req.ID)
	}
	if background {
		if err := e.roomForInputLocked(x); err != nil {
			x.cancel(nil)
			return nil, err
		}
		if err := e.enterLocked(x); err != nil {
			x.cancel(nil)
			return nil, err
		}
	}
	e.live[x.req.ID] = x
	e.work.Add(1)
	x.release = context.AfterFunc(e.ctx, func() { x.cancel(context.Canceled) }) //nolint:contextcheck // Close ends it whatever the caller's context
	return x, nil
}

// maxInput is how many bytes of programs and of what they read all background runs that have
// not ended hold together. Nobody waits for them, so a caller could start any number.
const maxInput = 256 << 20

// roomForInputLocked refuses a background run with queue_full if others hold too much. e.mu
// is held.
func (e *Engine) roomForInputLocked(x *execution) error {
	held, own := 0, len(x.req.Code)+len(x.req.Stdin)
	for _, other := range e.live {
		if other.background {
			held += len(other.req.Code) + len(other.req.Stdin)
		}
	}
	if held > 0 && held+own > maxInput {
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "background runs hold %d MiB of programs and input; with the %d MiB of this one they would hold more than %d MiB", held>>20, own>>20, maxInput>>20).
			WithHint("ask again when some have ended, or put large input into a session's file").With("retry_after_seconds", 2)
	}
	return nil
}

// tasks returns how many kernel tasks the request's sandbox adds to those of live
// sandboxes. It is 0 in a live session, which holds its tasks already.
func (x *execution) tasks() int {
	if x.session != nil && !x.newborn {
		return 0
	}
	return x.limits.MaxTasks()
}

// enterLocked puts a request into the queue unless it is there already. The caller holds
// e.mu.
func (e *Engine) enterLocked(x *execution) error {
	if x.ticket != nil {
		return nil
	}
	t, err := e.queue.Enter(x.who.Namespace)
	if err != nil {
		e.pressed(x.who.Namespace, 0, err)
		return err
	}
	x.ticket = t
	e.pressed(x.who.Namespace, t.Place(), nil)
	return nil
}

// enter is enterLocked for callers that do not hold e.mu.
func (e *Engine) enter(x *execution) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.enterLocked(x)
}

// begun sets the run of a request, for those who look it up while it runs.
func (e *Engine) begun(x *execution, r *run.Run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	x.run = r
}

// giveBack ends the admission of a request. If the program never started, the request is
// not counted as processed.
func (x *execution) giveBack() {
	if x.run == nil {
		x.ticket.Leave()
		return
	}
	x.ticket.Release()
}

// finish releases everything that a request holds, counts it and removes it from e.live.
func (e *Engine) finish(x *execution) {
	x.run.Close()
	if x.session != nil {
		if r := x.live; r != nil && r.WallsDue() {
			e.work.Go(func() { r.RefreshWalls(e.ctx) })
		}
		x.session.Release()
	}
	x.release()
	x.cancel(nil)
	x.ticket.Leave()  // if the request was refused before its turn
	if x.err == nil { // a request that was refused before it ran is not counted
		e.counts.Add(x.res.Status, e.cfg.Now().Sub(x.received))
	}
	e.mu.Lock()
	delete(e.live, x.req.ID)
	if x.background && x.err != nil {
		e.ended = append(e.ended, x.remains())
		if len(e.ended) > maxEnded {
			e.ended = e.ended[1:]
		}
	}
	e.mu.Unlock()
	close(x.done)
	e.work.Done()
}

// remains is what is kept of a background run that failed: what a look-up needs, and neither
// its program nor its secrets.
func (x *execution) remains() *execution {
	return &execution{order: order{who: x.who, req: sandboxmcp.Request{ID: x.req.ID}, background: true}, cancel: x.cancel, done: x.done, err: x.err}
}

// flush waits until the caller's writers have received all output, or until ctx ends.
func (x *execution) flush(ctx context.Context) {
	x.run.Flush(ctx)
}

const maxEnded = 256

// validate checks everything about a request that needs no sandbox, and completes it.
func (e *Engine) validate(ctx context.Context, x *execution) error {
	r := &x.req
	var err error
	if x.who, err = e.caller(x.who); err != nil {
		return err
	}
	if err = e.validateSession(ctx, x); err != nil {
		return err
	}
	if r.Language, err = sandboxmcp.ParseLanguage(string(r.Language)); err != nil {
		return err
	}
	if strings.TrimSpace(r.Code) == "" {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "code is empty").WithHint("send the program's text as code")
	}
	if n := int64(len(r.Code)); n > e.cfg.MaxCodeBytes {
		return sandboxmcp.Errorf(sandboxmcp.CodeCodeTooLarge, "code is %d bytes; at most %d are allowed", n, e.cfg.MaxCodeBytes).With("size_bytes", n).With("limit_bytes", e.cfg.MaxCodeBytes)
	}
	if err = kernel.CheckEnv(r.Env); err != nil {
		return err
	}
	if err = kernel.CheckFileName(r.FileName); err != nil {
		return err
	}
	if x.limits, x.clamped, err = e.limits.Of(ctx, x.who.Namespace, limits.Ask{Limits: r.Limits, Session: x.base, Modest: r.Modest, Strict: r.Strict}); err != nil {
		return err
	}
	if r.Backend == "" {
		r.Backend = e.cfg.DefaultBackend
	}
	if e.backends[r.Backend] == nil {
		if err := e.cfg.Absent[r.Backend]; err != nil {
			return err
		}
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "backend %s is not known", sandboxmcp.Quote(r.Backend)).WithHint("use process")
	}
	if r.ID == "" {
		r.ID = sandboxmcp.RequestID(uuid.NewString())
	} else if _, err := sandboxmcp.ParseRequestID(string(r.ID)); err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "request id %s is not 1 to 64 characters of A-Z a-z 0-9 _ -", sandboxmcp.Quote(string(r.ID)))
	} else if err := e.plainName(ctx, x.who.Namespace, "the request id", string(r.ID)); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(r.Code))
	x.codeSHA256 = hex.EncodeToString(sum[:])
	return nil
}

// open builds the sandbox of a single run or of a new session. first is the process that
// will be started first in it, if that is known.
func (e *Engine) open(x *execution, interp interpreter.Interpreter, first *backend.Prestart) (backend.Sandbox, error) {
	if d := interp.Shows(e.store.Dir()); d != "" {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the interpreter %s needs %s to be shown to the program, and that holds the state directory", interp.Path, d).
			WithHint("set SANDBOXMCP_STATE_DIR to a directory elsewhere, or put another interpreter first on the PATH")
	}
	const mib = 1 << 20
	memory := int64(x.limits.MaxRAMMB) * mib
	e.mu.Lock()
	e.seq++
	id := strconv.FormatUint(e.seq, 36)
	e.mu.Unlock()
	cpu := run.CPUTime(x.limits)
	if x.session != nil { // for all runs of the session; each run has its own timeout
		cpu = sessionCPUTime
	}
	sb, err := e.backends[x.req.Backend].Open(x.ctx, backend.Spec{
		ID: "run-" + id, MinTier: e.cfg.MinTier, Hint: string(x.req.Language), Loads: e.interps.Packages(x.req, interp),
		MemoryBytes: memory, CPUCores: x.limits.MaxCPUCores, MaxTasks: x.limits.MaxTasks(), CPUTime: cpu,
		WorkBytes: min(int64(e.cfg.WorkQuotaMB)*mib, memory/2), WorkInodes: workInodes, TempBytes: min(tempBytes, memory/2),
		Stays: x.session != nil, Prestart: first, Trees: interp.Trees,
	})
	if err != nil && x.ctx.Err() != nil {
		return nil, cancelledError(x.ctx)
	}
	return sb, err
}

const (
	sessionCPUTime = 24 * time.Hour

	workInodes = 20_000
	tempBytes  = 64 << 20
)

// discard closes a sandbox in the background.
func (e *Engine) discard(ctx context.Context, sb backend.Sandbox) {
	e.work.Go(func() {
		if err := sb.Close(context.WithoutCancel(ctx)); err != nil {
			e.log.Error("close sandbox", "error", err)
		}
	})
}

func takenError(id sandboxmcp.RequestID) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "request id %s is in use", id).WithHint("leave the id out to have one generated")
}
