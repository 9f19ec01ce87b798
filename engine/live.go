package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
	"github.com/sandboxmcp/sandboxmcp/internal/queue"
	"github.com/sandboxmcp/sandboxmcp/internal/session"
)

// liveSession is a live session with what the engine adds to it: its share of the machine's
// kernel tasks, its network, and the secrets that its programs have had.
type liveSession struct {
	*session.Live

	share     *queue.Share // kernel tasks of the sandbox, until Close
	interp    interpreter
	gatewayMu sync.Mutex // guards gateway and shut
	gateway   *gateway   // network of the sandbox; nil: not needed so far
	shut      bool       // Close was called
	offline   bool       // the session never gets a network

	had hadSecrets
}

// Close records what was refused last, closes the network and closes the sandbox.
func (r *liveSession) Close(ctx context.Context) error {
	r.Quiesce()
	r.gatewayMu.Lock()
	r.shut = true
	w := r.gateway
	r.gatewayMu.Unlock()
	w.closeSession()
	defer r.share.Release()
	return r.Live.Close(ctx)
}

// adopt makes w the session's network, and reports whether the session had none. If the
// session is closed already, it closes w.
func (r *liveSession) adopt(w *gateway) bool {
	r.gatewayMu.Lock()
	defer r.gatewayMu.Unlock()
	first := r.gateway == nil
	if r.gateway = w; r.shut && first {
		w.close()
	}
	return first
}

func (r *liveSession) currentGateway() *gateway {
	r.gatewayMu.Lock()
	defer r.gatewayMu.Unlock()
	return r.gateway
}

// executeCell runs a cell in the session's interpreter.
func (e *Engine) executeCell(x *execution, r *liveSession) (*outcome, error) {
	ctx, o, stop := e.attend(x)
	defer stop()
	end, err := r.Execute(x.ctx, ctx, session.Cell{ // x.ctx: a timeout during the start is a timeout, not a cancellation
		Cell:   kernel.Cell{Code: x.req.Code, Display: x.display(), Stdin: x.req.Stdin, Env: x.cellEnv()},
		Stdout: o.stdout, Stderr: o.stderr, Show: x.shown.Add,
		Preload: func() ([]string, func(context.Context) error) { return e.preload(x.req, r.interp) },
		Hurry:   func() bool { return errors.Is(context.Cause(ctx), errOutput) || e.ctx.Err() != nil },
	})
	if err != nil {
		return nil, startError(x.ctx, err)
	}
	o.report, o.exit, o.stopped, o.cause, o.isolation, o.usage = end.Report, end.Exit, end.Stopped, end.Cause, end.Isolation, end.Usage
	x.stateLost, x.ended = end.StateLost, end.Ended
	if end.Note != "" {
		o.stderr.Line(end.Note)
	}
	return o, nil
}

// display says where the value of a last expression goes. A session returns it as a
// result and never prints it.
func (x *execution) display() sandboxmcp.Display {
	if x.req.Display == sandboxmcp.DisplayStdout {
		return sandboxmcp.DisplayResults
	}
	return x.req.Display
}
