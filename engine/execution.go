package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/guard"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
	"github.com/sandboxmcp/sandboxmcp/internal/note"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
)

// order is a request; validate completes it. Later, inject gives req a copy of its
// environment with secrets; nothing else changes.
type order struct {
	who        sandboxmcp.Caller  // namespace and actor filled in
	req        sandboxmcp.Request // id, language, backend and file name filled in
	base       *sandboxmcp.Limits // limits of the live session; nil: those of the namespace and the settings
	limits     sandboxmcp.Limits  // in force
	clamped    []string
	codeSHA256 string
	background bool
	extras     []backend.ProgramFile // program files of a helper besides its text
	helps      bool                  // a helper: it is not counted as a run
	anew       bool                  // an expired id may be used again
	named      bool                  // the caller chose the id
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

	holds    func()                 // lets go of the trees that a single run's sandbox shows; nil: there are none
	wanted   *interpreter.Installed // packages of the request; nil: it asks for none
	network  *gateway.Run           // which hosts it may reach, and the network of its sandbox
	secrets  *guard.Run             // nil before the intent is recorded
	run      *run.Run               // nil: it has not begun to run; set with the engine's mu held
	files    note.Files             // that it has left
	gone     bool                   // its sandbox ended with it, and so did its files
	plan     *plan                  // how its program is started; nil: not planned yet
	injected bool                   // its environment has secrets

	guarded bool // its interpreter checks the program before it opens it; see guardOf

	received, admitted time.Time

	res sandboxmcp.Result // set when done is closed
	err error
}

// begin validates a request, completes it and adds it to e.live. A background request
// enters the queue here, because its caller is told its place at once. begin has no
// effect outside the engine.
func (e *Engine) begin(ctx context.Context, o order) (*execution, error) {
	o.named = o.req.ID != ""
	x := &execution{order: o, done: make(chan struct{}), received: e.cfg.Now()}
	if err := e.validate(ctx, x); err != nil {
		return nil, err
	}
	if x.req.Language != sandboxmcp.Python {
		if err := e.refuseDangerous(ctx, x); err != nil {
			return nil, err
		}
	}
	if err := e.store.CheckSpace(); err != nil {
		return nil, err
	}
	if o.named { // a stored run may have the id
		if stored, err := e.keeper.Stored(ctx, x.who.Namespace, o.req.ID); stored || err != nil {
			return nil, cmp.Or(err, takenError(o.req.ID))
		}
	}
	if o.background { // it outlives its caller
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
	if o.background {
		err := e.roomForInputLocked(x)
		if err == nil && len(x.req.Packages) == 0 { // packages first wait for a place of their own
			err = e.enterLocked(x)
		}
		if err != nil {
			x.cancel(nil)
			return nil, err
		}
	}
	if o.background {
		e.addJobLocked(x)
	}
	e.live[x.req.ID] = x
	e.endings.Over(x.req.ID)
	e.work.Add(1)
	x.release = context.AfterFunc(e.ctx, func() { x.cancel(context.Canceled) }) //nolint:contextcheck // Close ends it whatever the caller's context
	return x, nil
}

// maxInput bounds the bytes of programs and their input that all background runs hold together until they
// end. The call that starts such a run returns at once, so a caller could start any number.
const maxInput = 256 << 20

// roomForInputLocked refuses a background run with queue_full if the background runs would hold more than
// maxInput. It also refuses it if those of the run's namespace or caller would hold more than is free before
// the run. A namespace or caller without a background run may use all that is free. The caller holds e.mu.
func (e *Engine) roomForInputLocked(x *execution) error {
	held, same, own := 0, 0, len(x.req.Code)+len(x.req.Stdin)
	for _, other := range e.live {
		if other.background {
			size := len(other.req.Code) + len(other.req.Stdin)
			held += size
			if other.who.Namespace == x.who.Namespace || x.who.Holder != "" && other.who.Holder == x.who.Holder {
				same += size
			}
		}
	}
	if same > 0 && same+own > maxInput-held {
		return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "background runs of this namespace hold %d MiB of programs and input; with the %d MiB of this one they would hold more than is left for others", same>>20, own>>20).
			WithHint("ask again when some have ended, or put large input into a session's file").With("retry_after_seconds", 2)
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
	t, err := e.queue.Enter(x.who, sizeOf(&x.req))
	if err != nil {
		e.pressed(x.who.Namespace, 0, err)
		return err
	}
	x.ticket = t
	e.pressed(x.who.Namespace, t.Place(), nil)
	return nil
}

// sizeOf returns the bytes of memory that a waiting request holds, as far as its caller
// chooses them.
func sizeOf(r *sandboxmcp.Request) int64 {
	n := len(r.Code) + len(r.Stdin)
	for k, v := range r.Env {
		n += len(k) + len(v)
	}
	return int64(n)
}

// admit puts a request into the queue and waits until it is admitted and its tasks fit. It tells the
// caller if the request has to wait for either. If the request's context has ended, also in that call,
// the request is not admitted. If admit returns nil, the caller calls giveBack.
func (e *Engine) admit(x *execution) error {
	e.mu.Lock()
	err := e.enterLocked(x)
	e.mu.Unlock()
	if err != nil {
		return err
	}
	waits := func() {
		if x.req.Queued != nil {
			x.req.Queued(x.ticket.Place)
		}
	}
	if x.ticket.Place() > 0 {
		waits()
	}
	err = x.ticket.WaitTold(x.ctx, x.tasks(), waits)
	if err == nil && x.ctx.Err() != nil { // the place became free at the same moment
		x.ticket.Leave()
		err = x.ctx.Err()
	}
	if err != nil {
		return cancelledError(x.ctx)
	}
	return nil
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
	x.ticket.Leave()              // if the request was refused before its turn
	if x.err == nil && !x.helps { // a request that was refused before it ran is not counted
		e.counts.Add(x.res.Status, e.cfg.Now().Sub(x.received))
	}
	e.endings.Over(x.req.ID) // while no other run may have the id
	e.mu.Lock()
	delete(e.live, x.req.ID)
	e.endJobLocked(x)
	if x.background && x.err != nil {
		e.keepErrorLocked(x.remains())
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

// maxEnded is the number of background runs that ended in an error whose errors are kept.
const maxEnded = 256

// keepErrorLocked keeps the error of a background run that failed. The caller holds e.mu.
func (e *Engine) keepErrorLocked(x *execution) {
	if len(e.ended) >= maxEnded {
		i := oldestOfMost(e.ended, func(x *execution) (string, bool) { return ownerOf(x.who), true })
		e.ended = slices.Delete(e.ended, i, i+1)
	}
	e.ended = append(e.ended, x)
}

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
	if !x.helps { // a helper's text is the product's own
		if err = e.checkCode(r.Code); err != nil {
			return err
		}
	}
	if len(r.Packages) > 0 {
		if err = e.parse(ctx, &installation{who: x.who, language: r.Language, names: r.Packages}); err != nil {
			return err
		}
	}
	if err = kernel.CheckEnv(r.Env); err != nil {
		return err
	}
	if err = kernel.CheckFileName(r.FileName); err != nil {
		return err
	}
	if err = checkDomains(r.AllowedDomains); err != nil {
		return err
	}
	if r.Backend == "" {
		r.Backend = e.cfg.DefaultBackend
	}
	if x.limits, x.clamped, err = e.limits.Of(ctx, x.who.Namespace, limits.Ask{Limits: r.Limits, Session: x.base, Modest: r.Modest, Strict: r.Strict, Most: e.cfg.Most[r.Backend]}); err != nil {
		return err
	}
	if e.backends[r.Backend] == nil {
		if err := e.cfg.Absent[r.Backend]; err != nil {
			return err
		}
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "backend %s is not known", sandboxmcp.Quote(r.Backend)).WithHint("use process or docker")
	}
	if r.ID == "" {
		r.ID = sandboxmcp.RequestID(uuid.NewString())
	} else if _, err := sandboxmcp.ParseRequestID(string(r.ID)); err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "request id %s is not 1 to 64 characters of A-Z a-z 0-9 _ -", sandboxmcp.Quote(string(r.ID)))
	} else if err := e.plainName(ctx, x.who.Namespace, "the request id", string(r.ID)); err != nil {
		return err
	}
	x.codeSHA256 = digest([]byte(r.Code))
	return nil
}

// digest returns the SHA-256 of data in hexadecimal.
func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// opening says what a sandbox is prepared for.
type opening struct {
	hint  string            // see backend.Spec; empty: the language
	first *backend.Prestart // of the process that will be started first, if that is known
}

// open builds the sandbox of a single run, of a new session or of a helper.
func (e *Engine) open(x *execution, interp interpreter.Interpreter, o opening) (backend.Sandbox, error) {
	if d := interp.Shows(e.store.Dir()); d != "" {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the interpreter %s needs %s to be shown to the program, and that holds the state directory", interp.Path, d).
			WithHint("set SANDBOXMCP_STATE_DIR to a directory elsewhere, or put another interpreter first on the PATH")
	}
	if e.expected != nil {
		select {
		case <-e.expected:
		case <-x.ctx.Done():
			return nil, cancelledError(x.ctx)
		}
	}
	sb, err := e.backends[x.req.Backend].Open(x.ctx, e.specOf(x, interp, o))
	if err != nil && x.ctx.Err() != nil {
		return nil, cancelledError(x.ctx)
	}
	return sb, err
}

// specOf returns what the sandbox of a request has to be.
func (e *Engine) specOf(x *execution, interp interpreter.Interpreter, o opening) backend.Spec {
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
	return backend.Spec{
		ID: "run-" + id, MinTier: e.cfg.MinTier, Image: interp.Image, Hint: cmp.Or(o.hint, string(x.req.Language)), Loads: e.interps.Packages(x.req, interp),
		MemoryBytes: memory, CPUCores: x.limits.MaxCPUCores, MaxTasks: x.limits.MaxTasks(), CPUTime: cpu,
		WorkBytes: min(int64(e.settings().WorkQuotaMB)*mib, memory/2), WorkInodes: workInodes, TempBytes: min(tempBytes, memory/2),
		Stays: x.session != nil, Apart: x.helps, Prestart: o.first, Trees: interp.Trees,
	}
}

const (
	sessionCPUTime = 24 * time.Hour

	workInodes = 20_000
	tempBytes  = 64 << 20
)

// discard closes a sandbox in the background, and then calls then unless it is nil.
func (e *Engine) discard(ctx context.Context, sb backend.Sandbox, then func()) {
	e.work.Go(func() {
		if err := sb.Close(context.WithoutCancel(ctx)); err != nil {
			e.log.Error("close sandbox", "error", err)
		}
		if then != nil {
			then()
		}
	})
}

func takenError(id sandboxmcp.RequestID) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "request id %s is in use", id).WithHint("leave the id out to have one generated")
}
