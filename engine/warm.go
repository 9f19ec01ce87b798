package engine

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/artifact"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// headStart is how long New leaves the processor to the interpreter of Config.First. An interpreter that
// is known starts within this time.
const headStart = 20 * time.Millisecond

// warm makes the queue, and prepares in the background for Config.Warm and Config.First. With Config.First it returns
// when the interpreter starts: the store opens while the interpreter starts, and takes less time. If there is nothing to
// prepare, or if the state directory cannot be used, which openRecords reports, warm only makes the queue.
func (e *Engine) warm(ctx context.Context, makeQueue func()) {
	w, ok := e.backends[e.cfg.DefaultBackend].(backend.Warmer)
	if !ok || len(e.cfg.Warm) == 0 && e.cfg.First == nil || store.PrepareDir(e.cfg.StateDir) != nil {
		makeQueue()
		return
	}
	e.work.Go(func() {
		if e.cfg.First == nil {
			w.Prepare(e.ctx)
		}
		for _, l := range e.cfg.Warm {
			if i, err := e.interps.Find(e.ctx, e.backends[e.cfg.DefaultBackend], l); err == nil {
				w.Warm(e.ctx, backend.Spec{Trees: i.Trees})
			}
		}
	})
	if e.cfg.First == nil {
		makeQueue()
		return
	}
	e.expected = make(chan struct{})
	queued, starts := make(chan struct{}), make(chan struct{})
	//nolint:contextcheck // work in the background lives as long as the engine
	e.work.Go(func() {
		defer close(starts)
		s, err := e.expect(w, *e.cfg.First, queued)
		close(e.expected)
		if err != nil { // Execute reports it, if the request comes
			e.log.Debug("nothing is prepared for the first request", "error", err)
			return
		}
		<-s
	})
	//nolint:contextcheck // what it prepares lives as long as the engine
	w.Prepare(e.ctx) // here, because another goroutine might have to wait for a processor
	makeQueue()      // which reads the machine's bounds, while the builder starts
	close(queued)
	ctx, cancel := context.WithTimeout(ctx, headStart)
	defer cancel()
	select {
	case <-starts:
	case <-ctx.Done():
	}
}

// expect tells the default backend which sandbox and which process the request will need. The channel is
// closed when the process starts, or when none will. The store is not open yet: if it has other limits
// for the namespace, the sandbox may not fit and is not used. queued is closed when there is a queue.
func (e *Engine) expect(w backend.Warmer, r sandboxmcp.Request, queued <-chan struct{}) (starts <-chan struct{}, err error) {
	b := e.backends[e.cfg.DefaultBackend]
	if r.Backend != "" && r.Backend != b.Name() || r.SessionID != "" || len(r.Packages) > 0 {
		return nil, errors.New("it needs a sandbox that is not prepared")
	}
	if r.Language, err = sandboxmcp.ParseLanguage(string(r.Language)); err != nil {
		return nil, err
	}
	r.Backend = b.Name()
	x := &execution{order: order{req: r}}
	interp, err := e.interps.Find(e.ctx, b, r.Language)
	if err != nil {
		return nil, err
	}
	if interp.Shows(e.cfg.StateDir) != "" { // open refuses it
		return nil, errors.New("its interpreter needs the state directory to be shown")
	}
	planned := make(chan struct{})
	e.work.Go(func() { // while the builder of the jail works
		defer close(planned)
		e.planAhead(x, interp)
	})
	<-queued
	rules := limits.Rules{Defaults: e.cfg.Limits, Ceilings: e.cfg.Ceilings.Under(e.cfg.Most[r.Backend]), MostTasks: e.queue.MostTasks()}
	if x.limits, _, err = rules.Apply(r.Limits, rules.InForce(sandboxmcp.Limits{}), false); err != nil {
		return nil, err
	}
	spec := e.specOf(x, interp, opening{})
	w.Warm(e.ctx, spec)
	<-planned
	p, err := e.planned(x, interp)
	if err != nil {
		return nil, err
	}
	return w.Expect(e.ctx, spec, p), nil
}

// plan is how the program of a request is started.
type plan struct {
	process backend.Process
	err     error
	network map[string]string // variables of the network
}

// planAhead plans the program while the intent is recorded. A secret or a network that comes later changes the plan.
func (e *Engine) planAhead(x *execution, interp interpreter.Interpreter) {
	if x.live == nil {
		x.plan = e.planFor(x, interp)
	}
}

// planned returns how the program of a request is started.
func (e *Engine) planned(x *execution, interp interpreter.Interpreter) (backend.Process, error) {
	if x.plan == nil || x.injected || !maps.Equal(x.plan.network, x.environ()) {
		x.plan = e.planFor(x, interp)
	}
	return x.plan.process, x.plan.err
}

func (e *Engine) planFor(x *execution, interp interpreter.Interpreter) *plan {
	check := e.guardOf(x)
	x.guarded = check != ""
	network := x.environ()
	p, err := e.interps.Plan(e.backends[x.req.Backend], x.req, interp, network, check)
	p.Stdin = x.req.Stdin
	p.Program = append(p.Program, x.extras...)
	return &plan{p, err, maps.Clone(network)}
}

// rehearse decodes what a program says when it begins, encodes an empty result as the end of a run does, and keeps nothing. encoding/json computes
// how it handles a type when it first meets it. Without this the first program would wait for that; now it is done while its interpreter starts.
func (e *Engine) rehearse() {
	_, _ = kernel.Read(strings.NewReader(kernel.Began), nil)
	x := &execution{order: order{who: sandboxmcp.Caller{Namespace: e.cfg.Namespace}}}
	res := sandboxmcp.Result{Isolation: &sandboxmcp.Isolation{}, Artifacts: []sandboxmcp.Artifact{}, Metadata: map[string]any{}}
	_, _, err := e.key.Result(&res, sign.Run{CodeSHA256: digest(nil)})
	if err == nil {
		_, err = e.keeper.Save(e.ctx, artifact.Record{Result: res}, e.noteDropped)
	}
	if err == nil {
		_, err = e.notes(x.entries().Ended(&res, audit.Output{}, sandboxmcp.Limits{}))
	}
	if err != nil {
		e.log.Debug("rehearse the record of a run", "error", err)
	}
}
