package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
)

// Paths of MCP over HTTP.
const (
	MCPPath      = "/mcp"
	SSEPath      = "/sse"
	messagesPath = "/messages"
)

// IsMCP reports whether a path is one of MCP over HTTP.
func IsMCP(path string) bool { return path == MCPPath || path == SSEPath || path == messagesPath }

// Bounds of sessions of versions with a handshake. They live without a connection.
const (
	maxSessions     = 1024
	maxSessionsEach = 256 // of one caller
	sessionIdle     = 30 * time.Minute
)

// Headers of the streamable transport.
const (
	versionHeader = "MCP-Protocol-Version"
	sessionHeader = "Mcp-Session-Id"
)

// tenantHeader selects one of the caller's namespaces; see the package door.
const tenantHeader = "X-Tenant-Id"

// endpoint serves MCP over HTTP.
type endpoint struct {
	s      *Server
	root   context.Context //nolint:containedctx // the lifetime of the server, which ends its calls
	modern http.Handler    // requests without sessions
	legacy http.Handler    // sessions that begin with a handshake
	meta   []byte          // JSON of the field _meta of direct answers

	unanswered unanswered // calls on the streams

	mu      sync.Mutex
	streams map[string]*sseStream // of the transport of 2024-11-05
	owners  map[string]string     // the principal of each session of the streamable transport
	begun   map[string]int        // requests of each principal that may begin a session
	all     int                   // the sum of begun
}

// HTTP returns the handler of MCP over HTTP: of both streamable transports at /mcp, and of
// the older one at /sse. It is mounted behind a door, which says whose a request is. When ctx
// ends, calls are cancelled and sessions are closed.
//
// In versions from 2026-07-28 on, closing the connection of a call cancels it. In older ones
// the call goes on, and its answer can be fetched with Last-Event-ID.
func (s *Server) HTTP(ctx context.Context) http.Handler {
	e := &endpoint{s: s, root: ctx, streams: map[string]*sseStream{}, owners: map[string]string{}, begun: map[string]int{}}
	var err error
	if e.meta, err = json.Marshal(mcp.Meta{mcp.MetaKeyServerInfo: s.self}); err != nil {
		panic(fmt.Sprintf("encode server info: %v", err)) //nolint:forbidigo // strings alone can be encoded
	}
	get := func(*http.Request) *mcp.Server { return s.mcp }
	options := func(o mcp.StreamableHTTPOptions) *mcp.StreamableHTTPOptions {
		o.Logger, o.MaxRequestBodyBytes = s.log, maxLine
		o.DisableLocalhostProtection = true // the door checks the host, also for other listeners
		return &o
	}
	e.modern = mcp.NewStreamableHTTPHandler(get, options(mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true}))
	e.legacy = mcp.NewStreamableHTTPHandler(get, options(mcp.StreamableHTTPOptions{SessionTimeout: sessionIdle, EventStore: newHistory(e.ownerOf)}))
	context.AfterFunc(ctx, func() {
		for session := range s.mcp.Sessions() {
			_ = session.Close()
		}
	})
	return e
}

// ServeHTTP answers one request.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			id := incident()
			e.s.log.Error("request panicked", "incident", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			refuse(w, internalError(id))
		}
	}()
	id, ok := door.IdentityOf(r.Context())
	if !ok {
		refuse(w, sandboxmcp.Errorf(sandboxmcp.CodeUnauthenticated, "the request has no key"))
		return
	}
	w.Header().Set("X-Accel-Buffering", "no") // proxies pass events on at once
	switch r.URL.Path {
	case MCPPath:
		e.streamable(w, r, id)
	case SSEPath:
		e.openStream(w, r, id)
	case messagesPath:
		e.message(w, r, id)
	default:
		refuse(w, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "there is nothing here").WithHint("MCP is at "+MCPPath))
	}
}

// identityField is the field of the SDK's token that holds the identity of a request.
const identityField = "sandboxmcp.identity"

// streamable answers a request of the streamable transport. Clients choose the version by a
// header alone.
func (e *endpoint) streamable(w http.ResponseWriter, r *http.Request, id sandboxmcp.Identity) {
	modern := r.Header.Get(versionHeader) >= modernVersion
	if modern && e.direct(w, r, id) {
		return
	}
	if err := measured(r); err != nil {
		refuse(w, sandboxmcp.AsError(err))
		return
	}
	next, principal := e.legacy, door.Principal(id)
	token := tokenOf(id, linkOf(r.Context().Done(), w))
	r = r.WithContext(context.WithValue(r.Context(), rootKey{}, e.root))
	if modern {
		next = e.modern
	} else if r.Method == http.MethodPost && r.Header.Get(sessionHeader) == "" {
		if err := e.admitSession(principal); err != nil {
			refuse(w, err)
			return
		}
		defer func() { e.own(w.Header().Get(sessionHeader), principal) }()
	}
	// The SDK takes the caller of a request from its own middleware alone. It binds sessions
	// to that caller.
	r.Header = r.Header.Clone()
	r.Header.Del("X-API-Key")
	r.Header.Set("Authorization", "Bearer door")
	auth.RequireBearerToken(func(context.Context, string, *http.Request) (*auth.TokenInfo, error) {
		return token, nil
	}, nil)(next).ServeHTTP(w, r)
}

// tokenOf returns the SDK's token of a request of a caller.
func tokenOf(id sandboxmcp.Identity, l *link) *auth.TokenInfo {
	return &auth.TokenInfo{UserID: door.Principal(id), Expiration: time.Now().Add(time.Hour), Extra: map[string]any{identityField: id, linkField: l}}
}

// admitSession refuses a further session if there are too many, or if the caller would then have more
// than are left for all others. The first session of a caller may take the last place. If admitSession does
// not refuse, the caller calls own.
func (e *endpoint) admitSession(principal string) *sandboxmcp.Error {
	live := map[string]bool{}
	for session := range e.s.mcp.Sessions() {
		live[session.ID()] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	mine := e.begun[principal]
	for id, owner := range e.owners {
		switch {
		case !live[id]:
			delete(e.owners, id)
		case owner == principal:
			mine++
		}
	}
	open := len(e.owners) + e.all
	if open < maxSessions && mine < maxSessionsEach && (mine == 0 || mine+1 <= maxSessions-open) {
		e.begun[principal]++
		e.all++
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeQueueFull, "%d sessions of MCP clients are open, %d of them yours, and some places are kept for others", open, mine).
		WithHint("end sessions with DELETE, or wait").With("retry_after_seconds", 30)
}

// own records the session that a request has begun, if it has.
func (e *endpoint) own(session, principal string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all--
	if e.begun[principal]--; e.begun[principal] == 0 {
		delete(e.begun, principal)
	}
	if session != "" {
		e.owners[session] = principal
	}
}

// ownerOf returns the principal of a session; empty: it is not known yet.
func (e *endpoint) ownerOf(session string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.owners[session]
}

// identityOf returns the identity of a call's caller. Over HTTP every request has its own,
// also within a session.
func (s *Server) identityOf(ctx context.Context, extra *mcp.RequestExtra) (sandboxmcp.Identity, error) {
	if !s.http {
		id := s.identity
		id.Forms = true // the client is a program of the server's user, which has started the server
		return id, nil
	}
	if extra != nil && extra.TokenInfo != nil {
		if id, ok := extra.TokenInfo.Extra[identityField].(sandboxmcp.Identity); ok {
			return id, nil
		}
	}
	// Some calls have no token: those on an event stream, and subscriptions. They are on a
	// connection or in a session that a request of the same caller has begun.
	if id, ok := door.IdentityOf(ctx); ok {
		return id, nil
	}
	return sandboxmcp.Identity{}, sandboxmcp.Errorf(sandboxmcp.CodeUnauthenticated, "the caller of the request is not known")
}

// sseStream is a connection of the transport of 2024-11-05: answers are events of one GET, and
// requests are POSTs to a path with its mark.
type sseStream struct {
	id        sandboxmcp.Identity
	transport *countedTransport
}

// openStream serves the events of a client until it disconnects.
func (e *endpoint) openStream(w http.ResponseWriter, r *http.Request, id sandboxmcp.Identity) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		refuseWith(w, http.StatusMethodNotAllowed, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the method is not GET").WithHint("use "+MCPPath+" for newer clients"))
		return
	}
	mark := rand.Text()
	st := &sseStream{id: id, transport: &countedTransport{
		SSEServerTransport: &mcp.SSEServerTransport{Endpoint: messagesPath + "?session_id=" + mark, Response: w, MaxRequestBodyBytes: maxLine},
		all:                &e.unanswered, caller: door.Principal(id), alone: door.Alone(id), calls: map[jsonrpc.ID]held{},
	}}
	defer st.transport.end()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Connection", "keep-alive")
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(e.root, cancel)() //nolint:contextcheck // the server ends the stream, too
	base := context.WithValue(context.WithValue(ctx, rootKey{}, ctx), linkKey{}, linkOf(ctx.Done(), w))
	e.mu.Lock()
	e.streams[mark] = st
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.streams, mark)
		e.mu.Unlock()
	}()
	// The SDK waits for running calls when the context that it knows ends. They are cancelled
	// by the root instead.
	session, err := e.s.mcp.Connect(context.WithoutCancel(base), st.transport, nil)
	if err != nil {
		e.s.log.Debug("event stream ended at once", "error", err)
		return
	}
	defer func() { _ = session.Close() }() // it waits for calls, which cancel ends
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = session.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// message passes a request to the stream that it names. Only the caller that opened the
// stream can use it.
func (e *endpoint) message(w http.ResponseWriter, r *http.Request, id sandboxmcp.Identity) {
	e.mu.Lock()
	st := e.streams[r.URL.Query().Get("session_id")]
	e.mu.Unlock()
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuseWith(w, http.StatusMethodNotAllowed, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the method is not POST"))
	case st == nil || door.Principal(st.id) != door.Principal(id):
		refuse(w, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the event stream is not known").WithHint("open "+SSEPath+" first"))
	case r.Header.Get(tenantHeader) != "" && st.id.Own() != id.Own(): // calls on a stream act in the namespace of the stream, so the header would be ignored
		refuse(w, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the event stream is for namespace %s", st.id.Own()).WithHint("open an event stream for each namespace"))
	case strings.Contains(r.Header.Get("Content-Type"), "json"):
		err := st.transport.admit()
		if err == nil {
			err = measured(r)
		}
		if err != nil {
			refuse(w, sandboxmcp.AsError(err))
			return
		}
		st.transport.ServeHTTP(w, r)
	default:
		refuseWith(w, http.StatusUnsupportedMediaType, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the Content-Type is not application/json"))
	}
}
