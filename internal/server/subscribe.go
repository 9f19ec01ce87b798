package server

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	watchEvery = time.Second // interval of looks at a run whose output is subscribed to
	maxWatches = 64          // runs that are watched at the same time
)

// watches follow the runs whose resources clients have subscribed to. The zero value watches none.
type watches struct {
	mu   sync.Mutex
	runs map[sandboxmcp.RequestID]sandboxmcp.Namespace
	each map[sandboxmcp.Namespace]int // runs of each namespace that has some
}

// has reports whether a run is watched.
func (w *watches) has(id sandboxmcp.RequestID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.runs[id]
	return ok
}

// begin registers a run. It returns false if the run is watched already, or if the namespace has as
// many as there are places left: a watch lasts as long as its run, and one namespace must not take
// all places.
func (w *watches) begin(ns sandboxmcp.Namespace, id sandboxmcp.RequestID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.runs[id]; ok || w.each[ns] >= maxWatches-len(w.runs) {
		return false
	}
	if w.runs == nil {
		w.runs, w.each = map[sandboxmcp.RequestID]sandboxmcp.Namespace{}, map[sandboxmcp.Namespace]int{}
	}
	w.runs[id] = ns
	w.each[ns]++
	return true
}

func (w *watches) end(id sandboxmcp.RequestID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ns, ok := w.runs[id]
	if !ok {
		return
	}
	delete(w.runs, id)
	if w.each[ns]--; w.each[ns] <= 0 {
		delete(w.each, ns)
	}
}

// seen is what a watch keeps of a run. The output itself may be large.
type seen struct {
	stdout, stderr uint64
	results        int
}

func see(seed maphash.Seed, r *sandboxmcp.Result) seen {
	return seen{maphash.String(seed, r.Stdout), maphash.String(seed, r.Stderr), len(r.Results)}
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
	first, err := s.subscribers.add(req.Session, subscription{uri: req.Params.URI, ns: who.Namespace, scheme: scheme, id: id, path: path, stream: streamed(req.Params.Meta)})
	if err != nil {
		return s.protocolError(err)
	}
	if first != nil {
		s.followEvents(who, first) //nolint:contextcheck // clients come and go, and the last one ends it
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
	if err != nil || r.Status != sandboxmcp.StatusRunning || !s.watches.begin(who.Namespace, request) {
		return
	}
	seed := maphash.MakeSeed()
	first := see(seed, &r)
	root, ok := ctx.Value(rootKey{}).(context.Context) //nolint:contextcheck // the watch outlives the call
	if !ok {
		root = context.WithoutCancel(ctx)
	}
	go func() {
		defer s.watches.end(request)
		defer s.recovered("watch of a run")
		s.watch(root, who, request, seed, first)
	}()
}

// recovered logs a panic of a goroutine. It is deferred.
func (s *Server) recovered(what string) {
	if p := recover(); p != nil {
		s.log.Error("a goroutine panicked", "what", what, "panic", p)
	}
}

// watch tells subscribers of the changes of a run until it has ended.
func (s *Server) watch(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.RequestID, seed maphash.Seed, last seen) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r, err := s.engine.Lookup(ctx, who, sandboxmcp.Lookup{RequestID: id})
		if err != nil {
			return
		}
		next := see(seed, &r)
		ended = r.Status != sandboxmcp.StatusRunning
		for part, changed := range map[string]bool{
			"stdout": next.stdout != last.stdout, "stderr": next.stderr != last.stderr, "results": next.results != last.results, "result": ended,
		} {
			if changed {
				s.tell(ctx, who.Namespace, runURI(id, part))
			}
		}
		last = next
	}
}

// streamed reports whether a subscription is part of a subscriptions/listen, which repeats its metadata. A client may have
// several of them.
func streamed(meta mcp.Meta) bool { return meta[mcp.MetaKeyProtocolVersion] != nil }

// unsubscribe answers resources/unsubscribe, and the end of subscriptions/listen. If another stream of the client asks for the
// same, it fails, so that the SDK goes on to tell the client.
func (s *Server) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	if s.subscribers.remove(req.Session, req.Params.URI) {
		return errListened
	}
	return nil
}

var errListened = errors.New("another subscriptions/listen of the client asks for the resource")
