package api

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// route is one call of the API. Server and client use the same declaration, in routes.go. A path
// below /v1 is served on the unix socket; the other routes are served over HTTP, and have doc.
type route[In, Out any] struct {
	method, path string                    // path with {name} for the fields of In with that path tag
	body         int64                     // bytes of the request's body at most; 0: maxRequest
	answer       int64                     // bytes of the answer at most; 0: maxResponse
	slow         bool                      // it may build a sandbox or transfer a file
	wait         func(in In) time.Duration // extra time that the caller wants it to wait; nil: no extra time
	finish       bool                      // the call continues if the caller closes the connection
	operator     bool                      // only for a peer that holds every namespace
	all          bool                      // a peer that holds every namespace, and selects none, acts for all
	do           work[In, Out]

	// again returns an answer that was too large to hold, over HTTP; nil: answers are small.
	again func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, id sandboxmcp.RequestID) (Out, error)

	doc     string            // for documents: what it does
	example string            // a query or a body
	fails   []sandboxmcp.Code // codes of its own, beside those of every route
}

// work is the server's function of a route.
type work[In, Out any] func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in In) (Out, error)

// endpoint is a route without its types, as the server mounts it.
type endpoint interface {
	about() description
	serve(h *handler, w http.ResponseWriter, r *http.Request)
}

// description is what documents and tests need to know of a route.
type description struct {
	method, path string
	in, out      reflect.Type // in is a struct with tags; out is nil if the answer is no JSON
	media        string       // type of the answer; empty: application/json
	open         bool         // it needs no identity
	operator     bool
	doc, example string
	fails        []sandboxmcp.Code
}

func (d description) pattern() string { return d.method + " " + d.path }

// local reports whether the route is served on the unix socket, and not over HTTP.
func (d description) local() bool { return versionOf(d.path) != "" }

func (v route[In, Out]) about() description {
	return description{
		method: v.method, path: v.path, in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](),
		operator: v.operator, doc: v.doc, example: v.example, fails: v.fails,
	}
}

func (v route[In, Out]) serve(h *handler, w http.ResponseWriter, r *http.Request) {
	c, err := h.caller(r, v.all)
	if err == nil && v.operator {
		err = h.operates(r)
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	var in In
	if err = h.decode(w, r, orElse(v.body, maxRequest), c, &in); err != nil {
		h.fail(w, err)
		return
	}
	if v.slow {
		unhurried(w)
	}
	ctx := r.Context()
	if v.finish {
		ctx = context.WithoutCancel(ctx)
	}
	out, err := v.do(ctx, h.service, c, in)
	if err == nil && v.again != nil {
		place := placeFor(h.answers, c.Actor, heldBytes(out), w)
		defer place.Leave()
		if !place.Fits() {
			id := resultOf(out).RequestID
			out = *new(Out) // is not held while it waits
			if err = wait(ctx, place); err == nil {
				out, err = v.again(ctx, h.service, c, id)
			}
		}
		w = &sentWriter{w, place}
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.answer(w, http.StatusOK, out)
}

// call calls a route of a server.
func (v route[In, Out]) call(ctx context.Context, c *Client, who sandboxmcp.Caller, in In) (out Out, err error) {
	path, query, body, err := encodeInput(v.path, in)
	if err != nil {
		return out, err
	}
	limit := callTimeout
	if v.slow {
		limit = workTimeout
	}
	if v.wait != nil {
		limit += v.wait(in)
	}
	err = c.call(ctx, question{method: v.method, path: path, query: naming(query, who), body: body, limit: orElse(v.answer, maxResponse), time: limit}, &out)
	return out, err
}

// unhurried removes the deadlines of a response. It may then take as long as the caller
// waits.
func unhurried(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
}

func orElse(n, otherwise int64) int64 {
	if n == 0 {
		return otherwise
	}
	return n
}

// versionOf returns the version in a path, or an empty text.
func versionOf(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	n, ok := strings.CutPrefix(first, "v")
	if !ok || n == "" || strings.Trim(n, "0123456789") != "" {
		return ""
	}
	return n
}

// The functions below turn a method of the service into the work of a route.

// withBody adapts a method whose argument is the body.
func withBody[T, Out any](verb func(sandboxmcp.Service, context.Context, sandboxmcp.Caller, T) (Out, error)) work[body[T], Out] {
	return func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in body[T]) (Out, error) {
		return verb(s, ctx, c, in.Value)
	}
}

// withID adapts a method whose argument is the id in the path.
func withID[ID, Out any](verb func(sandboxmcp.Service, context.Context, sandboxmcp.Caller, ID) (Out, error)) work[about[ID], Out] {
	return func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in about[ID]) (Out, error) {
		return verb(s, ctx, c, in.ID)
	}
}

// alone adapts a method without arguments other than the caller.
func alone[Out any](verb func(sandboxmcp.Service, context.Context, sandboxmcp.Caller) (Out, error)) work[none, Out] {
	return func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (Out, error) {
		return verb(s, ctx, c)
	}
}

// ofServer adapts a method that returns the same for every caller.
func ofServer[Out any](verb func(sandboxmcp.Service, context.Context) (Out, error)) work[none, Out] {
	return func(ctx context.Context, s sandboxmcp.Service, _ sandboxmcp.Caller, _ none) (Out, error) {
		return verb(s, ctx)
	}
}
