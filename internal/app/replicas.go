package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
)

// replicas is an engine whose sessions and runs may be on other servers of the same database. It asks its own
// engine first, which refuses a session of another server before anything happens. The call is then passed on
// to that server, whose own engine answers. So a call is passed on once at most.
type replicas struct {
	Engine
	dial func(address string) *api.Client

	mu      sync.Mutex
	clients map[string]*api.Client // by address
}

// joinReplicas opens the address for the other servers, and returns the engine that passes calls on to them.
func (a *App) joinReplicas(ctx context.Context, d front) (e Engine, stop func(), err error) {
	if d.cfg.PeerAddress == "" {
		return d.engine, func() {}, nil
	}
	key, err := sign.Open(d.cfg.StateDir)
	if err != nil {
		return nil, nil, err
	}
	secure, err := key.PeerTLS()
	if err != nil {
		return nil, nil, err
	}
	s := d.socket()
	end, err := api.ListenRemote(ctx, api.RemoteConfig{Address: d.cfg.PeerAddress, TLS: secure, Service: d.engine, Logger: d.logger, MaxUpload: s.MaxUpload})
	if err != nil {
		return nil, nil, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "other servers cannot reach this one at peer_address: %v", err).
			WithHint("set peer_address to an address of this machine with a free port").WithCause(err)
	}
	r := newReplicas(d.engine, secure)
	return r, func() {
		end()
		r.closeIdle()
	}, nil
}

func newReplicas(own Engine, c *tls.Config) *replicas {
	return &replicas{Engine: own, clients: map[string]*api.Client{}, dial: func(address string) *api.Client { return api.Remote(address, c) }}
}

func (r *replicas) client(address string) *api.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.clients[address]
	if c == nil {
		c = r.dial(address)
		r.clients[address] = c
	}
	return c
}

func (r *replicas) closeIdle() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		c.Close()
	}
}

// Times of calls to a server that cannot be reached.
const (
	peerPatience = 3 * time.Second // for which it may still hold its lease after its end
	peerPause    = 100 * time.Millisecond
)

// passOn calls own, and if the session is on another server, there with the client of that. If that server cannot
// be reached, own is asked again, because it says when the server has ended.
func passOn[T any](ctx context.Context, r *replicas, own func() (T, error), there func(*api.Client) (T, error)) (T, error) {
	until := time.Now().Add(peerPatience)
	for {
		out, err := own()
		at := engine.Elsewhere(err)
		if at == "" {
			return out, err
		}
		out, failed := there(r.client(at))
		switch {
		case !api.Unreached(failed):
			return out, answered(ctx, at, failed)
		case time.Now().After(until):
			return out, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the server at %s, which has the session, cannot be reached", at).
				WithHint("ask again; if it has ended, the answer says so").WithCause(failed)
		}
		t := time.NewTimer(peerPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return out, sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the call was cancelled").WithCause(context.Cause(ctx))
		}
	}
}

// answered returns the error of a call that a server has got. It may have carried the call out.
func answered(ctx context.Context, at string, err error) error {
	if _, coded := errors.AsType[*sandboxmcp.Error](err); err == nil || coded {
		return err
	}
	if ctx.Err() != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the call was cancelled").WithCause(context.Cause(ctx))
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the server at %s, which has the session, ended before it answered", at).
		WithHint("see what has become of the session, then ask again").WithCause(err)
}

// passed is passOn for calls without an answer.
func passed(ctx context.Context, r *replicas, own func() error, there func(*api.Client) error) error {
	_, err := passOn(ctx, r, func() (struct{}, error) { return struct{}{}, own() }, func(c *api.Client) (struct{}, error) { return struct{}{}, there(c) })
	return err
}

// others calls each of the other servers at the same time, and returns the answers of those that answer.
func others[T any](ctx context.Context, r *replicas, ask func(*api.Client) (T, error)) []T {
	addresses, err := r.Peers(ctx)
	if err != nil {
		return nil
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var all []T
	for _, at := range addresses {
		wg.Go(func() {
			if out, err := ask(r.client(at)); err == nil {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, out)
			}
		})
	}
	wg.Wait()
	return all
}

// Execute implements [sandboxmcp.Runs].
func (r *replicas) Execute(ctx context.Context, c sandboxmcp.Caller, q sandboxmcp.Request) (sandboxmcp.Result, error) {
	return passOn(ctx, r, func() (sandboxmcp.Result, error) { return r.Engine.Execute(ctx, c, q) }, func(p *api.Client) (sandboxmcp.Result, error) {
		res, err := p.Execute(ctx, c, q)
		if err == nil && !api.Complete(res) { // parts of the result were too long for the answer; the database has the whole result
			if whole, none := r.Engine.Lookup(ctx, c, sandboxmcp.Lookup{RequestID: res.RequestID, Content: true}); none == nil {
				return whole, nil
			}
		}
		return res, err
	})
}

// Start implements [sandboxmcp.Runs].
func (r *replicas) Start(ctx context.Context, c sandboxmcp.Caller, q sandboxmcp.Request) (sandboxmcp.Result, error) {
	return passOn(ctx, r, func() (sandboxmcp.Result, error) { return r.Engine.Start(ctx, c, q) }, func(p *api.Client) (sandboxmcp.Result, error) { return p.Start(ctx, c, q) })
}

// Lookup implements [sandboxmcp.Runs]. A run that goes on is known to its server alone.
func (r *replicas) Lookup(ctx context.Context, c sandboxmcp.Caller, l sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	res, err := r.Engine.Lookup(ctx, c, l)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		return res, err
	}
	for _, found := range others(ctx, r, func(p *api.Client) (sandboxmcp.Result, error) { return p.Lookup(ctx, c, l) }) {
		if found.Status == sandboxmcp.StatusRunning || api.Complete(found) {
			return found, nil
		}
	}
	return r.Engine.Lookup(ctx, c, l) // it may have ended meanwhile
}

// Jobs implements [sandboxmcp.Runs].
func (r *replicas) Jobs(ctx context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Job, error) {
	all, err := r.Engine.Jobs(ctx, c)
	if err != nil {
		return all, err
	}
	for _, more := range others(ctx, r, func(p *api.Client) ([]sandboxmcp.Job, error) { return p.Jobs(ctx, c) }) {
		all = append(all, more...)
	}
	slices.SortStableFunc(all, func(a, b sandboxmcp.Job) int { return b.SubmittedAt.Compare(a.SubmittedAt) })
	return all, nil
}

// Cancel implements [sandboxmcp.Runs].
func (r *replicas) Cancel(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID) error {
	err := r.Engine.Cancel(ctx, c, id)
	if sandboxmcp.CodeOf(err) == sandboxmcp.CodeRequestNotFound && len(others(ctx, r, func(p *api.Client) (struct{}, error) { return struct{}{}, p.Cancel(ctx, c, id) })) > 0 {
		return nil
	}
	return err
}

// ArtifactContent implements [sandboxmcp.Runs].
func (r *replicas) ArtifactContent(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID, path string) (sandboxmcp.Artifact, error) {
	return passOn(ctx, r, func() (sandboxmcp.Artifact, error) { return r.Engine.ArtifactContent(ctx, c, id, path) },
		func(p *api.Client) (sandboxmcp.Artifact, error) { return p.ArtifactContent(ctx, c, id, path) })
}

// CreateSession implements [sandboxmcp.Sessions].
func (r *replicas) CreateSession(ctx context.Context, c sandboxmcp.Caller, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	return passOn(ctx, r, func() (sandboxmcp.Session, error) { return r.Engine.CreateSession(ctx, c, spec) },
		func(p *api.Client) (sandboxmcp.Session, error) { return p.CreateSession(ctx, c, spec) })
}

// TerminateSession implements [sandboxmcp.Sessions].
func (r *replicas) TerminateSession(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	return passed(ctx, r, func() error { return r.Engine.TerminateSession(ctx, c, id) }, func(p *api.Client) error { return p.TerminateSession(ctx, c, id) })
}

// CloseSession implements [sandboxmcp.Sessions].
func (r *replicas) CloseSession(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) error {
	return passed(ctx, r, func() error { return r.Engine.CloseSession(ctx, c, id) }, func(p *api.Client) error { return p.CloseSession(ctx, c, id) })
}

// Sessions implements [sandboxmcp.Sessions].
func (r *replicas) Sessions(ctx context.Context, c sandboxmcp.Caller) ([]sandboxmcp.Session, error) {
	all, err := r.Engine.Sessions(ctx, c)
	if err != nil {
		return all, err
	}
	return append(all, r.elsewhere(ctx, c)...), nil
}

// elsewhere returns the sessions of the other servers, the oldest first.
func (r *replicas) elsewhere(ctx context.Context, c sandboxmcp.Caller) []sandboxmcp.Session {
	lists := others(ctx, r, func(p *api.Client) ([]sandboxmcp.Session, error) { return p.Sessions(ctx, c) })
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b sandboxmcp.Session) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all
}

// Inspect implements [sandboxmcp.Sessions].
func (r *replicas) Inspect(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) (sandboxmcp.State, error) {
	st, err := passOn(ctx, r, func() (sandboxmcp.State, error) { return r.Engine.Inspect(ctx, c, id) }, func(p *api.Client) (sandboxmcp.State, error) { return p.Inspect(ctx, c, id) })
	if err == nil && id == "" {
		st.Sessions = append(st.Sessions, r.elsewhere(ctx, c)...)
	}
	return st, err
}

// Bridge implements [sandboxmcp.Sessions]. The two sessions have to be on one server.
func (r *replicas) Bridge(ctx context.Context, c sandboxmcp.Caller, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error) {
	return passOn(ctx, r, func() (sandboxmcp.Bridged, error) { return r.Engine.Bridge(ctx, c, b) }, func(p *api.Client) (sandboxmcp.Bridged, error) { return p.Bridge(ctx, c, b) })
}

// Upload implements [sandboxmcp.Sessions].
func (r *replicas) Upload(ctx context.Context, c sandboxmcp.Caller, u sandboxmcp.Upload) (sandboxmcp.SessionID, string, error) {
	type put struct {
		id   sandboxmcp.SessionID
		path string
	}
	var read bytes.Buffer // what the own engine has read of the body, which is bounded
	body := u.Body
	from := func() sandboxmcp.Upload {
		if body != nil {
			u.Body = io.MultiReader(bytes.NewReader(read.Bytes()), io.TeeReader(body, &read))
		}
		return u
	}
	out, err := passOn(ctx, r, func() (out put, err error) {
		out.id, out.path, err = r.Engine.Upload(ctx, c, from())
		return out, err
	}, func(p *api.Client) (out put, err error) {
		out.id, out.path, err = p.Upload(ctx, c, from())
		return out, err
	})
	return out.id, out.path, err
}

// SessionFiles implements [sandboxmcp.Sessions].
func (r *replicas) SessionFiles(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error) {
	return passOn(ctx, r, func() ([]sandboxmcp.SessionFile, error) { return r.Engine.SessionFiles(ctx, c, id) }, func(p *api.Client) ([]sandboxmcp.SessionFile, error) { return p.SessionFiles(ctx, c, id) })
}

// SessionEntries implements [sandboxmcp.Sessions].
func (r *replicas) SessionEntries(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, deep bool) ([]sandboxmcp.SessionEntry, error) {
	return passOn(ctx, r, func() ([]sandboxmcp.SessionEntry, error) { return r.Engine.SessionEntries(ctx, c, id, deep) },
		func(p *api.Client) ([]sandboxmcp.SessionEntry, error) { return p.SessionEntries(ctx, c, id, deep) })
}

// ReadFile implements [sandboxmcp.Sessions].
func (r *replicas) ReadFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, []byte, error) {
	type file struct {
		info sandboxmcp.SessionFile
		data []byte
	}
	out, err := passOn(ctx, r, func() (f file, err error) {
		f.info, f.data, err = r.Engine.ReadFile(ctx, c, id, path, limit)
		return f, err
	}, func(p *api.Client) (f file, err error) {
		f.info, f.data, err = p.ReadFile(ctx, c, id, path, limit)
		return f, err
	})
	return out.info, out.data, err
}

// OpenFile implements [server.FileSource]. Of a session of another server it returns at most [api.MaxFile] bytes.
func (r *replicas) OpenFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, io.ReadSeekCloser, error) {
	type file struct {
		info sandboxmcp.SessionFile
		data io.ReadSeekCloser
	}
	out, err := passOn(ctx, r, func() (f file, err error) {
		f.info, f.data, err = r.Engine.OpenFile(ctx, c, id, path, limit)
		return f, err
	}, func(p *api.Client) (file, error) {
		info, data, err := p.ReadFile(ctx, c, id, path, limit)
		return file{info, held{bytes.NewReader(data)}}, err
	})
	return out.info, out.data, err
}

// held is a file in memory.
type held struct{ *bytes.Reader }

// Close does nothing.
func (held) Close() error { return nil }

// RemoveFile implements [sandboxmcp.Sessions].
func (r *replicas) RemoveFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, path string) error {
	return passed(ctx, r, func() error { return r.Engine.RemoveFile(ctx, c, id, path) }, func(p *api.Client) error { return p.RemoveFile(ctx, c, id, path) })
}

// Install implements [sandboxmcp.Installer].
func (r *replicas) Install(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.InstallAsk) (sandboxmcp.Installation, error) {
	return passOn(ctx, r, func() (sandboxmcp.Installation, error) { return r.Engine.Install(ctx, c, ask) }, func(p *api.Client) (sandboxmcp.Installation, error) { return p.Install(ctx, c, ask) })
}
