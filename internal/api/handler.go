package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/sandboxmcp/sandboxmcp"
)

// handler serves the routes of one server to the peers of one listener.
type handler struct {
	service   sandboxmcp.Service
	identify  func(*http.Request) (sandboxmcp.Identity, error)
	hello     Hello
	logger    *slog.Logger
	maxUpload int64
	followers atomic.Int32
	ending    context.Context //nolint:containedctx // ends when event followers must be disconnected
}

// mount returns the handler of all routes.
func (h *handler) mount() http.Handler {
	h.maxUpload = cmp.Or(h.maxUpload, defaultUpload)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/hello", func(w http.ResponseWriter, _ *http.Request) { h.answer(w, http.StatusOK, h.hello) })
	for _, e := range endpoints() {
		mux.HandleFunc(e.pattern(), func(w http.ResponseWriter, r *http.Request) { e.serve(h, w, r) })
	}
	mux.HandleFunc("/", h.unknown)
	return mux
}

// unknown answers a request for a path that is not a route.
func (h *handler) unknown(w http.ResponseWriter, r *http.Request) {
	if v := versionOf(r.URL.Path); v != "" && v != strconv.Itoa(Protocol) {
		h.fail(w, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "this server has version %d of the API, but version %s was requested", Protocol, v).
			WithHint("use the same release of sandboxmcp on both sides").With("protocol", Protocol))
		return
	}
	h.fail(w, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "there is no %s %s", r.Method, sandboxmcp.Quote(r.URL.Path)).
		WithHint("client and server may be different releases of sandboxmcp"))
}

// caller returns the caller of a request.
func (h *handler) caller(r *http.Request) (sandboxmcp.Caller, error) {
	identity, err := h.identify(r)
	if err != nil {
		return sandboxmcp.Caller{}, err
	}
	name := r.URL.Query().Get("namespace")
	if name == string(sandboxmcp.EveryNamespace) && identity.Every {
		return identity.All(), nil
	}
	return identity.Caller(name)
}

func (h *handler) fail(w http.ResponseWriter, err error) {
	e := h.coded(err)
	h.answer(w, e.Code.Row().HTTP, e.Body())
}

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
	data, err := json.Marshal(body)
	if err != nil {
		h.logger.Error("encode API answer", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n'))
}
