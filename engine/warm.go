package engine

import (
	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/interpreter"
	"github.com/sandboxmcp/sandboxmcp/internal/limits"
)

// warm prepares the default backend in the background, for Config.Warm and Config.First.
func (e *Engine) warm() {
	b := e.backends[e.cfg.DefaultBackend]
	w, ok := b.(backend.Warmer)
	if !ok || len(e.cfg.Warm) == 0 && e.cfg.First == nil {
		return
	}
	e.work.Go(func() { w.Prepare(e.ctx) }) // while the interpreters are found
	if e.cfg.First != nil {
		e.expected = make(chan struct{})
		e.work.Go(func() {
			defer close(e.expected)
			if err := e.expect(w, *e.cfg.First); err != nil { // Execute reports it, if the request comes
				e.log.Debug("nothing is prepared for the first request", "error", err)
			}
		})
	}
	e.work.Go(func() {
		for _, l := range e.cfg.Warm {
			if i, err := e.interps.Find(e.ctx, b, l); err == nil {
				w.Warm(e.ctx, i.Trees)
			}
		}
	})
}

// expect tells the default backend which sandbox and which process the request will need. The store is
// not open yet: if its limits for the namespace are others, the sandbox may not fit and is not used.
func (e *Engine) expect(w backend.Warmer, r sandboxmcp.Request) error {
	b := e.backends[e.cfg.DefaultBackend]
	if r.Backend != "" && r.Backend != b.Name() || r.SessionID != "" || len(r.Packages) > 0 {
		return nil
	}
	var err error
	if r.Language, err = sandboxmcp.ParseLanguage(string(r.Language)); err != nil {
		return err
	}
	r.Backend = b.Name()
	x := &execution{order: order{req: r}}
	rules := limits.Rules{Defaults: e.cfg.Limits, Ceilings: e.cfg.Ceilings.Under(e.cfg.Most[r.Backend]), MostTasks: e.queue.MostTasks()}
	if x.limits, _, err = rules.Apply(r.Limits, rules.InForce(sandboxmcp.Limits{}), false); err != nil {
		return err
	}
	interp, err := e.interps.Find(e.ctx, b, r.Language)
	if err != nil {
		return err
	}
	if interp.Shows(e.cfg.StateDir) != "" { // open refuses it
		return nil
	}
	p, err := e.planned(x, interp)
	if err != nil {
		return err
	}
	w.Expect(e.ctx, e.specOf(x, interp, opening{}), p)
	return nil
}

// planned returns how the program of a request is started.
func (e *Engine) planned(x *execution, interp interpreter.Interpreter) (backend.Process, error) {
	p, err := e.interps.Plan(e.backends[x.req.Backend], x.req, interp, x.environ(), e.guardOf(x))
	p.Stdin = x.req.Stdin
	p.Program = append(p.Program, x.extras...)
	return p, err
}
