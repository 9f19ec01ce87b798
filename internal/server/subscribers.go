package server

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// Bounds of the resources that one client has subscribed to, and of those of all clients in a namespace. The end of each
// session visits the URIs of all clients in the SDK, and in versions without sessions each request is one.
const (
	maxSubscriptions = 256
	maxSubscribed    = 256 << 10 // bytes of their URIs
	maxInNamespace   = 16 * maxSubscriptions
)

// subscription is a resource that a client wants to hear of.
type subscription struct {
	uri              string
	ns               sandboxmcp.Namespace // that of the client when it subscribed
	scheme, id, path string               // of uri

	stream  bool // it is part of a subscriptions/listen
	listens int  // streams of the client that ask for it; 1 if it has subscribed by a request of its own
}

// subscribers are the subscriptions of all clients. The SDK has them by URI alone; a URI can mean
// another resource in each namespace.
type subscribers struct {
	mu       sync.Mutex
	of       map[*mcp.ServerSession]map[string]subscription
	each     map[sandboxmcp.Namespace]int       // subscriptions of each namespace that has some
	followed map[sandboxmcp.Namespace]*follower // of each namespace's events
	telling  map[telling]int                    // changes that are being told
}

// follower is a goroutine that follows the events of a namespace.
type follower struct{ stop context.CancelFunc } // nil: it has not begun

// telling is a change of a resource of a namespace.
type telling struct {
	ns  sandboxmcp.Namespace
	uri string
}

// add adds a subscription. A stream counts beside others of the same client that ask for the same. If nothing follows the
// events of the namespace yet, add returns the follower that has to begin.
func (b *subscribers) add(client *mcp.ServerSession, sub subscription) (first *follower, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mine := b.of[client]
	bytes := len(sub.uri)
	for uri := range mine {
		bytes += len(uri)
	}
	before, known := mine[sub.uri]
	if !known && (len(mine) >= maxSubscriptions || bytes > maxSubscribed) {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the client has subscribed to %d resources already, or their uris would have more than %d KiB", len(mine), maxSubscribed>>10).
			WithHint("unsubscribe from those that are no longer needed")
	}
	if (!known || before.ns != sub.ns) && b.each[sub.ns] >= maxInNamespace {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "the clients of namespace %s have subscribed to %d resources already", sub.ns, maxInNamespace).
			WithHint("unsubscribe from those that are no longer needed").With("retry_after_seconds", 30)
	}
	if mine == nil {
		mine = map[string]subscription{}
		b.of[client] = mine
	}
	sub.listens = 1
	if sub.stream {
		sub.listens += before.listens
	}
	mine[sub.uri] = sub
	b.each[sub.ns]++
	if known {
		b.endLocked(before.ns)
	}
	if b.followed[sub.ns] == nil {
		first = &follower{}
		b.followed[sub.ns] = first
	}
	return first, nil
}

// remove removes a subscription. It reports whether another stream of the client still asks for the same.
func (b *subscribers) remove(client *mcp.ServerSession, uri string) (left bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sub, known := b.of[client][uri]
	if !known {
		return false
	}
	if sub.listens--; sub.listens > 0 {
		b.of[client][uri] = sub
		return true
	}
	delete(b.of[client], uri)
	if len(b.of[client]) == 0 {
		delete(b.of, client)
	}
	b.endLocked(sub.ns)
	return false
}

// endLocked counts the end of a subscription. It ends the follower of a namespace without subscriptions.
func (b *subscribers) endLocked(ns sandboxmcp.Namespace) {
	if b.each[ns]--; b.each[ns] > 0 {
		return
	}
	delete(b.each, ns)
	if f := b.followed[ns]; f != nil && f.stop != nil {
		f.stop()
	}
	delete(b.followed, ns)
}

// begin reports whether a follower is still needed, and lets stop end it. Its namespace may have lost its last subscription,
// and got another one with a follower of its own, before it could begin.
func (b *subscribers) begin(f *follower, ns sandboxmcp.Namespace, stop context.CancelFunc) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.stop = stop
	return b.followed[ns] == f
}

// abandon removes a follower that could not begin, so that the next subscription has another one.
func (b *subscribers) abandon(f *follower, ns sandboxmcp.Namespace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.followed[ns] == f {
		delete(b.followed, ns)
	}
}

// gone returns the subscriptions of clients that are not live. The next removal of one removes it.
func (b *subscribers) gone(live map[*mcp.ServerSession]bool) (all []*mcp.UnsubscribeRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for client, of := range b.of {
		if live[client] {
			continue
		}
		for uri, sub := range of {
			sub.listens = 1
			of[uri] = sub
			all = append(all, &mcp.UnsubscribeRequest{Session: client, Params: &mcp.UnsubscribeParams{URI: uri}})
		}
	}
	return all
}

// prune drops the subscriptions of clients that are gone, except for client. The SDK would never
// drop their URIs, so prune asks it to end each subscription.
func (s *Server) prune(ctx context.Context, client *mcp.ServerSession) {
	live := s.liveSessions()
	live[client] = true
	for _, req := range s.subscribers.gone(live) {
		if _, err := s.receive(ctx, "resources/unsubscribe", req); err != nil {
			s.log.Warn("a subscription of a client that is gone cannot be ended", "error", err)
		}
		s.subscribers.remove(req.Session, req.Params.URI)
	}
}

// changed returns the URIs in a namespace that match.
func (b *subscribers) changed(ns sandboxmcp.Namespace, match func(subscription) bool) map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	uris := map[string]bool{}
	for _, all := range b.of {
		for uri, sub := range all {
			if sub.ns == ns && match(sub) {
				uris[uri] = true
			}
		}
	}
	return uris
}

// hears reports whether a notification of a URI that is being sent to a client is of a change in
// the namespace of its subscription.
func (b *subscribers) hears(client *mcp.ServerSession, uri string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	sub, ok := b.of[client][uri]
	return ok && b.telling[telling{sub.ns, uri}] > 0
}

// tell tells the subscribers of a namespace that a resource has changed.
func (s *Server) tell(ctx context.Context, ns sandboxmcp.Namespace, uri string) {
	b, t := &s.subscribers, telling{ns, uri}
	count := func(n int) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.telling[t] += n; b.telling[t] == 0 {
			delete(b.telling, t)
		}
	}
	count(1)
	defer count(-1)
	_ = s.mcp.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}) // the SDK logs what it cannot send
}

// onlyOwn keeps notifications of resources from subscribers in other namespaces.
func (s *Server) onlyOwn(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.ResourceUpdatedNotificationParams); ok {
			if client, ok := req.GetSession().(*mcp.ServerSession); !ok || !s.subscribers.hears(client, p.URI) {
				return nil, nil //nolint:nilnil // a notification has no result
			}
		}
		return next(ctx, method, req)
	}
}

// liveSessions returns the sessions of the clients that are connected.
func (s *Server) liveSessions() map[*mcp.ServerSession]bool {
	live := map[*mcp.ServerSession]bool{}
	for session := range s.mcp.Sessions() {
		live[session] = true
	}
	return live
}

// followEvents tells subscribers of a namespace of changes, until none is left.
func (s *Server) followEvents(who sandboxmcp.Caller, f *follower) {
	ctx, stop := context.WithCancel(context.Background()) //nolint:forbidigo // it outlives the call of the client that subscribes first
	events, err := s.engine.Follow(ctx, who, false)
	if err != nil {
		stop()
		s.subscribers.abandon(f, who.Namespace)
		s.log.Warn("subscribers are not told of changes", "namespace", who.Namespace, "error", err)
		return
	}
	if !s.subscribers.begin(f, who.Namespace, stop) {
		stop()
		return
	}
	go func() {
		defer stop()
		defer s.recovered("follower of events")
		for e := range events {
			s.prune(ctx, nil)
			s.heard(ctx, who, e)
		}
	}()
}

// heard tells subscribers of what an event has changed.
func (s *Server) heard(ctx context.Context, who sandboxmcp.Caller, e sandboxmcp.Event) {
	text := func(key string) string {
		switch v := e.Data[key].(type) {
		case sandboxmcp.RequestID:
			return string(v)
		case sandboxmcp.SessionID:
			return string(v)
		case string:
			return v
		}
		return ""
	}
	run, session := text("request_id"), text("session_id")
	var match func(subscription) bool
	switch e.Type {
	case sandboxmcp.EventExecutionStarted:
		if len(s.subscribers.changed(who.Namespace, func(b subscription) bool { return b.scheme == "run" && b.id == run })) > 0 {
			s.watchRun(ctx, who, sandboxmcp.RequestID(run))
		}
		return
	case sandboxmcp.EventExecutionCompleted, sandboxmcp.EventExecutionFailed, sandboxmcp.EventExecutionTimeout:
		match = s.changedBy(ctx, who, run, session)
	case sandboxmcp.EventSessionKilled:
		match = func(b subscription) bool { return b.scheme == "artifact" && b.id == session }
	default:
		match = func(subscription) bool { return false }
	}
	if e.Dropped > 0 { // what was missed may have changed anything
		match = func(b subscription) bool { return b.scheme != "" }
	}
	for uri := range s.subscribers.changed(who.Namespace, match) {
		s.tell(ctx, who.Namespace, uri)
	}
}

// changedBy returns which resources a run has changed that has ended: its own, and files of its
// session.
func (s *Server) changedBy(ctx context.Context, who sandboxmcp.Caller, run, session string) func(subscription) bool {
	files := map[string]bool{}
	ofFiles := func(b subscription) bool {
		return b.scheme == "artifact" && (b.id == run || session != "" && b.id == session)
	}
	all := false
	if len(s.subscribers.changed(who.Namespace, ofFiles)) > 0 {
		r, err := s.engine.Lookup(ctx, who, sandboxmcp.Lookup{RequestID: sandboxmcp.RequestID(run)})
		all = err != nil
		for _, a := range r.Artifacts {
			files[a.Name] = true
		}
	}
	watched := s.watches.has(sandboxmcp.RequestID(run))
	return func(b subscription) bool {
		if b.scheme == "run" {
			return b.id == run && !watched // a watch tells of the end itself
		}
		return ofFiles(b) && (all || files[b.path])
	}
}

// tellOfFile tells subscribers of a file of a session that a client has changed.
func (s *Server) tellOfFile(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, name string) {
	for uri := range s.subscribers.changed(ns, func(b subscription) bool {
		return b.scheme == "artifact" && b.id == string(id) && b.path == name
	}) {
		s.tell(ctx, ns, uri)
	}
}
