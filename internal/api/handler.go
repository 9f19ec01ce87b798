package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/share"
)

// handler serves the routes of one server to the peers of one listener.
type handler struct {
	service   sandboxmcp.Service
	identify  func(*http.Request) (sandboxmcp.Identity, error)
	hello     Hello
	logger    *slog.Logger
	maxUpload func() int64
	stop      func()        // see Config; nil: the server cannot be stopped by a call
	alike     func() string // see Config; may be nil
	followers followers
	answers   *share.Bound    // results that are sent over HTTP
	beat      time.Duration   // see heartbeat
	ending    context.Context //nolint:containedctx // ends when event followers must be disconnected

	peers   bool   // the clients are other servers, which name the holder of the caller in a parameter
	public  bool   // it serves the routes over HTTP, not those of the unix socket
	version string // of the product, if public

	invocation sandboxmcp.Invocation // for the commands in errors; zero on the unix socket, whose client knows its own

	readiness readiness
}

// mount returns the handler of the routes of one listener.
func (h *handler) mount() http.Handler {
	if h.maxUpload == nil {
		h.maxUpload = func() int64 { return defaultUpload }
	}
	mux := http.NewServeMux()
	if !h.public {
		mux.HandleFunc("GET /v1/hello", func(w http.ResponseWriter, _ *http.Request) { h.answer(w, http.StatusOK, h.greeting()) })
		mux.HandleFunc("POST "+stopPath, h.stopServer)
	}
	methods := map[string][]string{} // by path
	for _, e := range endpoints() {
		d := e.about()
		if d.local() == h.public {
			continue
		}
		mux.HandleFunc(d.pattern(), func(w http.ResponseWriter, r *http.Request) { e.serve(h, w, r) })
		methods[d.path] = append(methods[d.path], d.method)
	}
	if h.public {
		for path, allowed := range methods {
			mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { h.wrongMethod(w, r, allowed) })
		}
	}
	mux.HandleFunc("/", h.unknown)
	return mux
}

// greeting returns how the server identifies itself now.
func (h *handler) greeting() Hello {
	hello := h.hello
	if h.alike != nil {
		hello.Alike = h.alike()
	}
	return hello
}

// wrongMethod answers a request for a route with another method.
func (h *handler) wrongMethod(w http.ResponseWriter, r *http.Request, allowed []string) {
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	h.failWith(w, http.StatusMethodNotAllowed, invalid("%s has no method %s", r.URL.Path, sandboxmcp.Quote(r.Method)).WithHint("use "+list))
}

const stopPath = "/v1/stop"

// stopServer ends the server after its answer.
func (h *handler) stopServer(w http.ResponseWriter, r *http.Request) {
	identity, err := h.identify(r)
	switch {
	case err != nil:
	case !identity.Every:
		err = sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "only the owner of the state directory may stop a server")
	case h.stop == nil:
		err = sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "this server serves an agent and ends with it").
			WithHint("end the agent, or the process " + strconv.Itoa(h.hello.PID))
	}
	if err != nil {
		h.fail(w, err)
		return
	}
	h.answer(w, http.StatusOK, done{true})
	_ = http.NewResponseController(w).Flush() // a server that stops closes the connection
	h.stop()
}

// unknown answers a request for a path that is not a route.
func (h *handler) unknown(w http.ResponseWriter, r *http.Request) {
	if v := versionOf(r.URL.Path); v != "" && v != strconv.Itoa(Protocol) {
		h.fail(w, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "this server has version %d of the API, but version %s was requested", Protocol, v).
			WithHint("use the same release of sandboxmcp on both sides").With("protocol", Protocol))
		return
	}
	hint := "client and server may be different releases of sandboxmcp"
	if h.public {
		hint = "GET /openapi.json lists the routes"
	}
	h.fail(w, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "there is no %s %s", r.Method, sandboxmcp.Quote(r.URL.Path)).WithHint(hint))
}

// caller returns the caller of a request. With all, a peer that holds every namespace and selects
// none acts for all of them.
func (h *handler) caller(r *http.Request, all bool) (sandboxmcp.Caller, error) {
	identity, err := h.identify(r)
	if err != nil {
		return sandboxmcp.Caller{}, err
	}
	if h.public {
		if all && identity.Every && r.Header.Get(tenantHeader) == "" {
			return identity.All(), nil
		}
		return identity.Caller("")
	}
	name := r.URL.Query().Get("namespace")
	if name == string(sandboxmcp.EveryNamespace) && identity.Every {
		return identity.All(), nil
	}
	c, err := identity.Caller(name)
	if err == nil && h.peers {
		c.Holder = r.URL.Query().Get(holderParameter)
	}
	return c, err
}

// operates refuses a peer that does not hold every namespace. Such a peer runs code, and must not
// answer the questions of its own runs.
func (h *handler) operates(r *http.Request) error {
	identity, err := h.identify(r)
	if err == nil && !identity.Every {
		err = sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "only an operator decides what programs may do").
			WithHint("decide on the machine of the server with `sandboxmcp egress approve`, `sandboxmcp host access approve` or `sandboxmcp packages approve`, or use the key of an operator (api_keys: KEY=*)")
	}
	return err
}

// decode reads the input of a request. Over HTTP it refuses query parameters that are not known, and
// an argument namespace that is not the caller's.
func (h *handler) decode(w http.ResponseWriter, r *http.Request, limit int64, c sandboxmcp.Caller, in any) error {
	var own namespaceOf
	if h.public {
		own = namespaceOf(c.Namespace)
		if err := checkQuery(r, own, reflect.TypeOf(in).Elem()); err != nil {
			return err
		}
	}
	return decodeInput(w, r, limit, own, in)
}

func (h *handler) fail(w http.ResponseWriter, err error) {
	e := h.coded(err)
	h.failWith(w, e.Code.Row().HTTP, e)
}

// defaultRetry is after how many seconds to ask again if an error that may pass does not say.
const defaultRetry = 1

func (h *handler) failWith(w http.ResponseWriter, status int, e *sandboxmcp.Error) {
	if e.Code.Row().Retry {
		after := defaultRetry
		if n, ok := e.Fields[retryAfter].(int); ok {
			after = n
		}
		w.Header().Set("Retry-After", strconv.Itoa(after))
	}
	h.answer(w, status, h.pasted(e).Body())
}

// pasted returns an error with its commands as persons call them on this machine.
func (h *handler) pasted(e *sandboxmcp.Error) *sandboxmcp.Error {
	own := *e
	if h.public {
		own.Hint = inRoutes.Replace(own.Hint)
	}
	own.Message, own.Hint = h.invocation.Paste(e.Message), h.invocation.Paste(cmp.Or(own.Hint, e.Code.Row().Hint))
	return &own
}

// inRoutes replaces commands by the routes that give the same answer.
var inRoutes = strings.NewReplacer(
	"`sandboxmcp vault list`", "GET /vault", "`sandboxmcp egress list`", "GET /approvals", "`sandboxmcp host access list`", "GET /approvals",
	"`sandboxmcp packages list`", "GET /approvals", "`sandboxmcp session list`", "GET /sessions", "`sandboxmcp runtimes`", "GET /runtimes",
)

// coded returns the error that the caller gets. Internal faults are also logged, unless
// the caller has gone: then the code is cancelled.
func (h *handler) coded(err error) *sandboxmcp.Error {
	e := sandboxmcp.AsError(err)
	if e.Code == sandboxmcp.CodeInternal && errors.Is(err, context.Canceled) {
		return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the call was cancelled")
	}
	if e.Code == sandboxmcp.CodeInternal {
		h.logger.Error("API call ended in a fault", "error", err)
	}
	return e
}

func (h *handler) answer(w http.ResponseWriter, status int, body any) {
	if h.public {
		body = withoutNulls(body)
	}
	body, long := withoutBulk(body)
	data, err := json.Marshal(body)
	if err != nil {
		h.logger.Error("encode API answer", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	data = append(data, '\n')
	w.Header().Set("Content-Type", "application/json")
	if len(long) == 0 { // an answer with a length is complete before its handler returns
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	}
	w.WriteHeader(status)
	err = writeAnswer(w, data, long)
	if errors.Is(err, errNoMark) {
		h.logger.Error("encode API answer", "error", err)
	}
	if err != nil { // the connection is closed, so that a part of an answer does not end like a whole one
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http has no other way to say that
	}
}
