package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// retryAfter is the field of an error that says after how many seconds to ask again.
const retryAfter = "retry_after_seconds"

// tenantHeader is the header by which a caller selects one of its namespaces. The listener has
// applied it to the identity.
const tenantHeader = "X-Tenant-Id"

// HTTPConfig configures [HTTP]. Service, Identify and Logger are required.
type HTTPConfig struct {
	Service  sandboxmcp.Service
	Logger   *slog.Logger
	Version  string // of the product
	Identify func(*http.Request) (sandboxmcp.Identity, error)

	Invocation sandboxmcp.Invocation // how persons call this program, for the commands in errors

	// Link returns the URL of a file of a request, or an empty text. Nil: there are no URLs.
	Link func(ns sandboxmcp.Namespace, id, path string, size int64) string
}

// HTTP returns the handler of the routes that are served over HTTP. The first namespace of an
// identity is the one that a request acts in. When ctx ends, the followers of events are
// disconnected, and the server is no longer ready.
func HTTP(ctx context.Context, c HTTPConfig) http.Handler {
	h := &handler{
		service: c.Service, logger: c.Logger, identify: c.Identify, version: c.Version, ending: ctx, invocation: c.Invocation,
		public: true, beat: heartbeat, followers: followers{each: maxFollowEach}, answers: newAnswers(),
	}
	h.readiness.records, _ = c.Service.(records)
	if c.Link != nil {
		h.service = linked{c.Service, c.Link}
	}
	return h.recovered(h.mount())
}

// Open reports whether a request over HTTP needs no identity: it is a check of health.
func Open(r *http.Request) bool {
	return slices.ContainsFunc(endpoints(), func(e endpoint) bool {
		d := e.about()
		return d.open && d.path == r.URL.Path && (r.Method == d.method || r.Method == http.MethodHead)
	})
}

// recovered answers a request whose handler panics with an internal error. One that gives its client up
// is not answered.
func (h *handler) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) //nolint:forbidigo // net/http closes the connection
			}
			if p != nil {
				h.logger.Error("request panicked", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				h.fail(w, sandboxmcp.Errorf(sandboxmcp.CodeInternal, "an internal error occurred"))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// linked is a service whose results have URLs of their files.
type linked struct {
	sandboxmcp.Service
	link func(ns sandboxmcp.Namespace, id, path string, size int64) string
}

// Execute implements [sandboxmcp.Runs].
func (l linked) Execute(ctx context.Context, c sandboxmcp.Caller, r sandboxmcp.Request) (sandboxmcp.Result, error) {
	res, err := l.Service.Execute(ctx, c, r)
	return l.add(res), err
}

// Lookup implements [sandboxmcp.Runs].
func (l linked) Lookup(ctx context.Context, c sandboxmcp.Caller, q sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	res, err := l.Service.Lookup(ctx, c, q)
	return l.add(res), err
}

func (l linked) add(r sandboxmcp.Result) sandboxmcp.Result {
	r.Artifacts = slices.Clone(r.Artifacts)
	for i := range r.Artifacts {
		a := &r.Artifacts[i]
		if a.DownloadURL != nil {
			continue
		}
		if url := l.link(r.Namespace, string(r.RequestID), a.Name, a.SizeBytes); url != "" {
			a.DownloadURL = &url
		}
	}
	return r
}

// namespaceOf is the namespace that a request acts in. The argument namespace may name it, in the query
// and in forms, because clients of the Python project sandboxmcp send it. Empty: the argument is not known.
type namespaceOf sandboxmcp.Namespace

// namespaceArgument is the name of the argument.
const namespaceArgument = "namespace"

// check refuses the name of another namespace. Its message does not contain the name, which may come
// from a form with a secret.
func (own namespaceOf) check(name string) error {
	if name == "" || name == string(sandboxmcp.DefaultNamespace) || name == string(own) {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the request acts in namespace %s, and names another", sandboxmcp.Quote(string(own))).
		WithHint("leave namespace out; " + tenantHeader + " selects another namespace of the key")
}

// checkQuery refuses a query that cannot be read, a query parameter that the input does not have, and one that is given
// twice.
func checkQuery(r *http.Request, own namespaceOf, in reflect.Type) error {
	var names []string
	for f := range in.Fields() {
		if name, ok := f.Tag.Lookup("query"); ok {
			names = append(names, name)
		}
	}
	form, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("the query cannot be read: %v", err).WithHint("write parameters as NAME=VALUE, joined by &, with other characters than letters and digits as %XX")
	}
	for name, values := range form {
		switch {
		case name == namespaceArgument && own != "":
			if len(values) > 1 {
				return invalid("the query parameter %s is given %d times", name, len(values))
			}
			if err := own.check(values[0]); err != nil {
				return err
			}
		case len(names) == 0:
			return invalid("the query parameter %s is not known; this route has none", sandboxmcp.Quote(name))
		case !slices.Contains(names, name):
			return invalid("the query parameter %s is not known", sandboxmcp.Quote(name)).WithHint("the parameters are " + strings.Join(names, ", "))
		case len(values) > 1:
			return invalid("the query parameter %s is given %d times", name, len(values))
		}
	}
	return nil
}

// special is a route that is no call of one verb.
type special struct {
	description
	handle func(h *handler, w http.ResponseWriter, r *http.Request, c sandboxmcp.Caller)
}

func (s special) about() description { return s.description }

func (s special) serve(h *handler, w http.ResponseWriter, r *http.Request) {
	var c sandboxmcp.Caller
	var err error
	if !s.open {
		c, err = h.caller(r, false)
	}
	if err == nil {
		err = checkQuery(r, namespaceOf(c.Namespace), reflect.TypeFor[none]())
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	s.handle(h, w, r, c)
}

// Answers of special routes.
type (
	health struct {
		Status string `json:"status" doc:"ok"`
	}
	healthOf struct {
		Status    string               `json:"status" doc:"ok"`
		Namespace sandboxmcp.Namespace `json:"namespace" doc:"the one that the request acts in"`
		Version   string               `json:"version"`

		Record *sandboxmcp.AuditSigning `json:"record,omitempty" doc:"whether new entries of the audit record are signed and their checkpoints are in all places; if not, reason and since say why not and since when"`
	}
)

// specials returns the routes that are no calls of one verb.
func specials() []endpoint {
	return []endpoint{
		special{description{method: "GET", path: "/health", out: reflect.TypeFor[healthOf](), doc: "Says that the server works, its version, the caller's namespace, and whether the audit record is signed."}, (*handler).serveHealth},
		special{description{method: "GET", path: "/healthz", out: reflect.TypeFor[health](), open: true, doc: "Says that the server is alive."}, (*handler).serveAlive},
		special{description{method: "GET", path: "/readyz", out: reflect.TypeFor[health](), open: true, doc: "Says whether the server can run programs now.", fails: []sandboxmcp.Code{sandboxmcp.CodeBackendUnavailable}}, (*handler).serveReady},
		special{description{method: "GET", path: "/metrics", media: metricsType, doc: "Returns counts and gauges of the server, of all namespaces together, in the text format of Prometheus."}, (*handler).serveMetrics},
		special{description{method: "GET", path: "/openapi.json", out: reflect.TypeFor[map[string]any](), doc: "Returns this API as an OpenAPI 3.1 document."}, (*handler).serveOpenAPI},
	}
}

// serveHealth is also ok while the audit record is not signed. Entries are still recorded and programs still run, so
// a balancer or a supervisor must not end the server for it: another server of the record would not sign
// either, and sessions would be lost. For the same reason serveReady does not ask for it.
func (h *handler) serveHealth(w http.ResponseWriter, r *http.Request, c sandboxmcp.Caller) {
	st, err := h.service.Stats(r.Context())
	if err != nil {
		h.fail(w, err)
		return
	}
	h.answer(w, http.StatusOK, healthOf{"ok", c.Namespace, h.version, st.Record})
}

func (h *handler) serveAlive(w http.ResponseWriter, _ *http.Request, _ sandboxmcp.Caller) {
	h.answer(w, http.StatusOK, health{"ok"})
}

// serveReady answers clients without a key, so it asks the backends and the database only once in a while.
func (h *handler) serveReady(w http.ResponseWriter, r *http.Request, _ sandboxmcp.Caller) {
	err := h.readiness.check(r.Context(), h.service)
	if h.ending.Err() != nil {
		err = sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the server is ending")
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.answer(w, http.StatusOK, health{"ok"})
}

// readyFor is how long an answer about readiness holds, and how long the backends and the database may take for it.
const readyFor = 5 * time.Second

// records is a service that has a database. Answers returns an error if the database does not answer before ctx ends.
type records interface {
	Answers(ctx context.Context) error
}

// readiness remembers whether the server can run programs.
type readiness struct {
	records records // nil: the service has no database

	mu    sync.Mutex // guards the fields below; held while the backends are asked
	until time.Time
	err   error
}

func (p *readiness) check(ctx context.Context, s sandboxmcp.Service) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.until) {
		return p.err
	}
	// The answer is for all callers: it is also found and kept for one that leaves meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyFor)
	defer cancel()
	all, err := s.Runtimes(ctx)
	if err == nil && p.records != nil {
		err = p.records.Answers(ctx) // a run that cannot be recorded is refused
	}
	if err == nil && !slices.ContainsFunc(all.Backends, func(b sandboxmcp.BackendInfo) bool { return b.Available }) {
		err = sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "no backend can run programs on this machine")
	}
	p.err, p.until = err, time.Now().Add(readyFor)
	return err
}

func (h *handler) serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ sandboxmcp.Caller) {
	doc, err := openAPIOnce(h.version)
	if err != nil {
		h.fail(w, err)
		return
	}
	h.answer(w, http.StatusOK, json.RawMessage(bytes.TrimSpace(doc)))
}
