package server

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	watchEvery = time.Second // interval of looks at a run whose output is subscribed to
	maxWatches = 64          // runs that are watched at the same time
)

// watches follow the runs whose resources clients have subscribed to.
type watches struct {
	mu   sync.Mutex
	runs map[sandboxmcp.RequestID]bool
}

// has reports whether a run is watched.
func (w *watches) has(id sandboxmcp.RequestID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[id]
}

// begin registers a run. It returns false if the run is watched already, or too many are.
func (w *watches) begin(id sandboxmcp.RequestID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runs[id] || len(w.runs) >= maxWatches {
		return false
	}
	w.runs[id] = true
	return true
}

func (w *watches) end(id sandboxmcp.RequestID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runs, id)
}

// subscribe answers resources/subscribe. Clients are told when the output of a running request has
// grown, when a request has ended, and when a run or an upload has changed a file of a session. Any
// other resource can be subscribed to, but does not change. So is a resource of another namespace,
// whose changes the client does not hear of.
func (s *Server) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	scheme, id, path, ok := splitURI(req.Params.URI)
	if !ok {
		scheme, id, path = "", "", ""
	}
	identity, err := s.identityOf(ctx, req.Extra)
	if err != nil {
		return s.protocolError(err)
	}
	who, err := identity.Caller("")
	if err != nil {
		return s.protocolError(err)
	}
	s.prune(ctx, req.Session)
	first, err := s.subscribers.add(req.Session, subscription{uri: req.Params.URI, ns: who.Namespace, scheme: scheme, id: id, path: path})
	if err != nil {
		return s.protocolError(err)
	}
	if first {
		s.followEvents(who) //nolint:contextcheck // clients come and go, and the last one ends it
	}
	if scheme == "run" {
		s.watchRun(ctx, who, sandboxmcp.RequestID(id))
	}
	return nil
}

// watchRun begins to watch a run, if it is running and not watched yet. The watch outlives ctx.
func (s *Server) watchRun(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.RequestID) {
	request, err := sandboxmcp.ParseRequestID(string(id))
	if err != nil {
		return
	}
	r, err := s.engine.Lookup(ctx, who, sandboxmcp.Lookup{RequestID: request})
	if err != nil || r.Status != sandboxmcp.StatusRunning || !s.watches.begin(request) {
		return
	}
	root, ok := ctx.Value(rootKey{}).(context.Context) //nolint:contextcheck // the watch outlives the call
	if !ok {
		root = context.WithoutCancel(ctx)
	}
	go func() {
		defer s.watches.end(request)
		defer s.recovered("watch of a run")
		s.watch(root, who, r)
	}()
}

// recovered logs a panic of a goroutine. It is deferred.
func (s *Server) recovered(what string) {
	if p := recover(); p != nil {
		s.log.Error("a goroutine panicked", "what", what, "panic", p)
	}
}

// watch tells subscribers of the changes of a run until it has ended.
func (s *Server) watch(ctx context.Context, who sandboxmcp.Caller, last sandboxmcp.Result) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	id := last.RequestID
	for last.Status == sandboxmcp.StatusRunning {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		next, err := s.engine.Lookup(ctx, who, sandboxmcp.Lookup{RequestID: id})
		if err != nil {
			return
		}
		ended := next.Status != sandboxmcp.StatusRunning
		for part, changed := range map[string]bool{
			"stdout": next.Stdout != last.Stdout, "stderr": next.Stderr != last.Stderr, "results": len(next.Results) != len(last.Results), "result": ended,
		} {
			if changed {
				s.tell(ctx, who.Namespace, runURI(id, part))
			}
		}
		last = next
	}
}

// unsubscribe answers resources/unsubscribe, and the end of subscriptions/listen.
func (s *Server) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	s.subscribers.remove(req.Session, req.Params.URI)
	return nil
}
