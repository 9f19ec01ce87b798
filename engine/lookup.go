package engine

import (
	"context"
	"slices"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/run"
	"github.com/sandboxmcp/sandboxmcp/internal/stats"
)

// Start accepts a request and runs it in the background. It returns at once with status
// running and the request's id; [Engine.Lookup] returns the result. The run goes on after
// ctx ends, until it ends, is cancelled or the engine closes.
func (e *Engine) Start(ctx context.Context, c sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	x, err := e.begin(ctx, order{who: c, req: req, background: true})
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	res := e.pending(x)
	go func() { //nolint:contextcheck // the run outlives ctx
		defer e.finish(x)
		_, _ = e.run(x) // run stores both in x
	}()
	return res, nil
}

// pending returns the result of a run that has not ended, without its output.
func (e *Engine) pending(x *execution) sandboxmcp.Result {
	e.mu.Lock()
	ticket, r := x.ticket, x.run
	e.mu.Unlock()
	meta := map[string]any{}
	if len(x.clamped) > 0 {
		meta["clamped"], meta["clamped_values"] = x.clamped, x.clampedValues()
	}
	if place := ticket.Place(); place > 0 {
		meta["queue_place"] = place
	}
	res := sandboxmcp.Result{
		RequestID: x.req.ID, SessionID: x.sessionID(), Language: x.req.Language, Namespace: x.who.Namespace, Backend: x.req.Backend, Status: sandboxmcp.StatusRunning, ExitCode: sandboxmcp.ExitStopped,
		Artifacts: []sandboxmcp.Artifact{}, Results: []sandboxmcp.RichResult{}, Metadata: meta,
		Usage:   sandboxmcp.ResourceUsage{MaxTasks: x.limits.MaxTasks()},
		Network: sandboxmcp.Network{Allowed: []string{}, Denied: []sandboxmcp.DeniedRequest{}},

		TimeoutSeconds: x.limits.TimeoutSeconds,
	}
	if r != nil {
		res.ElapsedSeconds = e.cfg.Now().Sub(r.Started()).Seconds()
	}
	return res
}

// soFar is pending with the output so far. Many callers may ask for a long output at once: few
// copies are made at a time, none for a caller that has left, and the namespaces take turns.
func (e *Engine) soFar(ctx context.Context, x *execution) (sandboxmcp.Result, error) {
	e.mu.Lock()
	r := x.run
	e.mu.Unlock()
	if r == nil {
		return e.pending(x), nil
	}
	done, err := inTurn(ctx, e.outputs, x.who)
	if err == nil {
		defer done()
	}
	switch {
	case ctx.Err() != nil:
		return sandboxmcp.Result{}, waitCancelled(ctx)
	case err != nil:
		return sandboxmcp.Result{}, err
	}
	res := e.pending(x)
	res.Stdout, res.Stderr, res.StdoutTruncated, res.StderrTruncated = r.Stdout.Text(), r.Stderr.Text(), r.Stdout.Cut(), r.Stderr.Cut()
	return res, nil
}

// Lookup returns the result of a request, or its status if it has not ended. It waits up
// to q.Wait for the end. It does not find requests of other namespaces.
func (e *Engine) Lookup(ctx context.Context, c sandboxmcp.Caller, q sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	if _, err := sandboxmcp.ParseRequestID(string(q.RequestID)); err != nil {
		return sandboxmcp.Result{}, err
	}
	x := e.find(c.Namespace, q.RequestID)
	if x == nil {
		return e.load(ctx, c, q)
	}
	if q.Cancel && x.background {
		x.cancel(errAsked)
		q.Wait = max(q.Wait, run.KillLimit)
	}
	if q.Wait > 0 {
		t := time.NewTimer(q.Wait)
		defer t.Stop()
		select {
		case <-x.done:
		case <-t.C:
		case <-ctx.Done():
			return sandboxmcp.Result{}, waitCancelled(ctx)
		}
	}
	select {
	case <-x.done:
	default:
		return e.soFar(ctx, x)
	}
	if x.err != nil {
		return sandboxmcp.Result{}, x.err
	}
	return e.load(ctx, c, q)
}

// load returns the stored result of a request that has ended. Results are large, and a caller may ask for many
// at once, so the namespaces take turns.
func (e *Engine) load(ctx context.Context, c sandboxmcp.Caller, q sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	done, err := inTurn(ctx, e.loads, c)
	if err != nil {
		return sandboxmcp.Result{}, err
	}
	defer done()
	return e.keeper.Load(ctx, c.Namespace, q.RequestID, q.Content)
}

// waitCancelled is the error of a look-up whose caller has left.
func waitCancelled(ctx context.Context) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the wait was cancelled; the request goes on").WithCause(context.Cause(ctx))
}

// find returns a live request, or a background one that ended in an error.
func (e *Engine) find(ns sandboxmcp.Namespace, id sandboxmcp.RequestID) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	if x := e.live[id]; x != nil && x.who.Namespace == ns {
		return x
	}
	i := slices.IndexFunc(e.ended, func(x *execution) bool { return x.req.ID == id && x.who.Namespace == ns })
	if i < 0 {
		return nil
	}
	return e.ended[i]
}

// Cancel ends a request of this engine, waiting or running, in the foreground or
// background. It returns before the request has ended.
func (e *Engine) Cancel(_ context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID) error {
	c, err := e.caller(c)
	if err != nil {
		return err
	}
	e.mu.Lock()
	x := e.live[id]
	e.mu.Unlock()
	if x == nil || x.who.Namespace != c.Namespace {
		return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no request %s is running or waiting", sandboxmcp.Quote(string(id)))
	}
	x.cancel(errAsked)
	return nil
}

// Output returns all that is stored of a stream of an ended request. stream is "stdout"
// or "stderr".
func (e *Engine) Output(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID, stream string) ([]byte, error) {
	c, err := e.caller(c)
	if err != nil {
		return nil, err
	}
	return e.keeper.Output(ctx, c.Namespace, id, stream)
}

// ArtifactContent returns an artifact of a request with its content. path is relative to
// /mnt/data. The id of a session that has ended returns the newest artifact of that name.
func (e *Engine) ArtifactContent(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID, path string) (sandboxmcp.Artifact, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.Artifact{}, err
	}
	a, err := e.keeper.Content(ctx, c.Namespace, id, path)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		return a, err
	}
	session := sandboxmcp.SessionID(id)
	switch _, live := e.sessions.Find(ctx, c.Namespace, session); {
	case live == nil:
		return a, err // the file itself may be newer than its artifacts
	case Elsewhere(live) != "":
		return a, live
	}
	if kept, none := e.keeper.OfSession(ctx, c.Namespace, session, path); none == nil {
		return kept, nil
	}
	return a, err
}

// Runtimes lists the languages and backends, and why any of them is unavailable.
func (e *Engine) Runtimes(ctx context.Context) (sandboxmcp.Runtimes, error) {
	list, err := e.backends[e.cfg.DefaultBackend].Interpreters(ctx)
	if err != nil {
		return sandboxmcp.Runtimes{}, err
	}
	r := sandboxmcp.Runtimes{Runtimes: list, Backends: []sandboxmcp.BackendInfo{}}
	for i := range r.Runtimes {
		r.Runtimes[i].Backend = e.cfg.DefaultBackend
		r.Runtimes[i].PackagesPreloaded = append(r.Runtimes[i].PackagesPreloaded, e.interps.Installed(r.Runtimes[i])...)
	}
	for _, b := range e.cfg.Backends {
		c := b.Capabilities(ctx)
		info := sandboxmcp.BackendInfo{Name: b.Name(), Available: c.Available, Reason: c.Reason}
		if c.Available {
			info.Isolation = &c.Isolation
		}
		r.Backends = append(r.Backends, info)
	}
	names := make([]string, 0, len(e.cfg.Absent))
	for name := range e.cfg.Absent {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		r.Backends = append(r.Backends, sandboxmcp.BackendInfo{Name: name, Reason: sandboxmcp.AsError(e.cfg.Absent[name]).Message})
	}
	return r, nil
}

// Packages returns the names of the packages that Python programs can import besides their own
// library.
func (e *Engine) Packages(ctx context.Context) ([]string, error) {
	return e.interps.Names(ctx, e.backends[e.cfg.DefaultBackend])
}

// Answers sends the database of the records a query. It returns an error if the database does not answer before ctx
// ends, or if its disk is so full that runs are refused. The error names no path, because /readyz shows it to
// clients without a key.
func (e *Engine) Answers(ctx context.Context) error {
	if err := e.store.CheckSpace(); err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the disk of the records is too full for runs").
			WithHint("ask the operator to free some space").WithCause(err)
	}
	return e.store.Answers(ctx)
}

// Stats returns counts since the engine was opened, and what it uses now.
func (e *Engine) Stats(context.Context) (sandboxmcp.Stats, error) {
	s := sandboxmcp.Stats{Queue: e.queue.Stats(), Sessions: e.sessions.Len(), Pool: map[string]int{}, Resources: stats.Resources()}
	for _, b := range e.backends {
		if p, ok := b.(backend.Pooler); ok {
			for kind, n := range p.Pool() {
				s.Pool[kind] += n
			}
		}
	}
	s.Executions, s.LatencyMS = e.counts.Snapshot()
	record := e.audit.Signing()
	s.Record = &record
	return s, nil
}
