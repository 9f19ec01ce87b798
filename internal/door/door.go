// Package door admits HTTP requests. It refuses requests for another host name and from web
// pages of other origins, bounds bodies, time and rate, and finds out which namespaces the
// caller may use. It passes the other requests on with an [sandboxmcp.Identity] in their
// context. The content of a request never decides that.
//
// A caller proves who it is with a key in the header X-API-Key or Authorization: Bearer, or
// with a token of an OAuth issuer. On loopback, and on a unix socket, a program of the
// server's own user needs none unless the operator has set keys.
package door

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
	"github.com/sandboxmcp/sandboxmcp/internal/share"
)

// Key is a key with the namespaces that its callers may use.
type Key struct {
	Secret     sandboxmcp.Secret
	Namespaces []sandboxmcp.Namespace // the first is the default; empty: the server's own
	Operator   bool                   // its callers hold every namespace
}

// Rules are the settings that may change while a server runs. [Door.SetRules] replaces them.
type Rules struct {
	Keys    []Key    // keys of the operator
	Origins []string // origins of web pages that may call the server
	Rate    int      // requests per second and caller; 0: no limit
}

// Config configures a door.
type Config struct {
	Own sandboxmcp.Namespace // the server's own namespace; required
	Rules
	Local  sandboxmcp.Secret // key for programs of this machine if there are no Keys; empty: none
	NoAuth bool              // callers need no key
	Tokens Verifier          // checks tokens of OAuth; nil: there are none

	Names []string // host names of the server, beside its addresses

	// Open reports whether a request needs no identity, such as a check of health or a signed
	// link. Nil: every request needs one.
	Open func(r *http.Request) bool

	MaxBody int64        // bytes of a body at most; 0: 128 MiB
	Logger  *slog.Logger // nil: nothing is logged
}

// Verifier checks tokens of an OAuth issuer.
type Verifier interface {
	// Verify returns the identity of a token and when it expires, or an error with the reason for the
	// log.
	Verify(ctx context.Context, token string) (id sandboxmcp.Identity, expires time.Time, err error)
	// Challenge returns the parameters of WWW-Authenticate for a caller without a token.
	Challenge() string
}

// Door is a handler that admits requests to another one.
type Door struct {
	Config  // without Rules
	next    http.Handler
	setting sync.Mutex // held by SetRules
	rules   atomic.Pointer[rules]
	missed  *rates       // wrong keys
	bodies  *share.Bound // bytes of large bodies
}

// rules is what follows from [Rules].
type rules struct {
	Rules
	peers   peers
	keyless *peer // all callers without a key, while there are no Keys
	rates   *rates
}

// New returns a door that admits requests to next.
func New(c Config, next http.Handler) *Door {
	if c.MaxBody == 0 {
		c.MaxBody = defaultBody
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Open == nil {
		c.Open = func(*http.Request) bool { return false }
	}
	d := &Door{Config: c, next: next, missed: newRates(0), bodies: share.New(allBodies, patience)}
	d.SetRules(c.Rules)
	d.Config.Rules = Rules{}
	return d
}

// SetRules replaces the rules, for requests to come. Requests and streams of keys that are gone, or
// whose namespaces are others now, are cancelled. So are those without a key once there are keys.
func (d *Door) SetRules(r Rules) {
	d.setting.Lock()
	defer d.setting.Unlock()
	before := d.rules.Load()
	next := &rules{Rules: r, peers: newPeers(d.Own, r.Keys, d.Local), keyless: newPeer(sandboxmcp.Identity{}), rates: newRates(r.Rate)}
	if before == nil {
		d.rules.Store(next)
		return
	}
	if before.Rate == r.Rate {
		next.rates = before.rates
	}
	gone := next.peers.adopt(before.peers)
	if len(r.Keys) == 0 {
		next.keyless = before.keyless
	} else {
		gone = append(gone, before.keyless)
	}
	d.rules.Store(next)
	for _, p := range gone {
		p.revoke()
	}
}

// ServeHTTP admits or refuses one request.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, rules := w.Header(), d.rules.Load()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if len(r.TransferEncoding) > 0 {
		// A proxy may have taken another header for the length of the body. What follows it on
		// this connection is not read as a request.
		h.Set("Connection", "close")
	}
	if err := d.checkPage(r, rules); err != nil {
		d.refuse(w, r, err)
		return
	}
	if rules.crossOrigin(w, r) {
		return
	}
	id, held, err := d.identify(r, rules)
	if err != nil && !d.Open(r) {
		if sandboxmcp.CodeOf(err) == sandboxmcp.CodeUnauthenticated {
			h.Set("WWW-Authenticate", d.challenge())
		}
		d.refuse(w, r, err)
		return
	}
	if err == nil {
		who := Principal(id)
		if Alone(id) { // without keys, all clients are this one caller, so the address tells them apart
			listen.Belongs(r.Context(), who+"\x00"+listen.Client(r.RemoteAddr))
		} else {
			listen.Belongs(r.Context(), who)
		}
		if err = rules.rates.take(who); err != nil {
			d.refuse(w, r, err)
			return
		}
		ctx, release := held.hold(r.Context())
		defer release()
		r = r.WithContext(WithIdentity(ctx, id))
	}
	sent := r.Body
	out, done, err := d.bound(w, r)
	if err != nil {
		if sandboxmcp.CodeOf(err) == sandboxmcp.CodeQueueFull {
			d.refuseBody(w, r, sent, err)
		} else {
			d.refuse(w, r, err)
		}
		return
	}
	defer done()
	if r.Header.Get("Expect") != "" {
		// net/http keeps deadlines from one request of a connection to the next. It writes the answer
		// to Expect by itself; all other writes have a deadline of their own.
		_ = out.control.SetWriteDeadline(time.Time{})
	}
	defer func() { out.within(pieceTime) }() // the rest of the answer is sent after this function
	d.next.ServeHTTP(out, r)
	if out.refused() {
		done()
		d.refuseBody(w, r, sent, tooManyBodies(false))
	}
}

// checkPage refuses requests that a web page of another origin may have sent.
func (d *Door) checkPage(r *http.Request, rules *rules) error {
	if err := CheckOrigin(r, d.Names, rules.Origins); err != nil {
		return err
	}
	// A page may send a GET without Origin, for a picture. A person may follow a link.
	if site := r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") && r.Header.Get("Origin") == "" && !d.Open(r) {
		return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "a web page of another origin sent the request").
			WithHint("call the server from a program")
	}
	if r.ContentLength == 0 {
		return nil
	}
	// Browsers send these types to other origins without asking.
	switch kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.ToLower(strings.TrimSpace(kind)) {
	case "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data":
		return &refusal{http.StatusUnsupportedMediaType, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the Content-Type of the body is not application/json").
			WithHint("send Content-Type: application/json")}
	}
	return nil
}

// crossOrigin adds the headers of CORS for an allowed origin. It returns true if it has
// answered the request.
func (d *rules) crossOrigin(w http.ResponseWriter, r *http.Request) (answered bool) {
	origin, h := r.Header.Get("Origin"), w.Header()
	if len(d.Origins) > 0 {
		h.Add("Vary", "Origin")
	}
	if origin == "" || !allowed(origin, d.Origins) {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Retry-After, WWW-Authenticate")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, HEAD")
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, X-API-Key, X-Tenant-Id, Last-Event-ID, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name")
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// refusal is an error with an HTTP status of its own.
type refusal struct {
	status int
	err    *sandboxmcp.Error
}

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

// retryAfter is the field of an error that becomes the header Retry-After.
const retryAfter = "retry_after_seconds"

// refuse answers with the product's error body.
func (d *Door) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := sandboxmcp.AsError(err)
	status := e.Code.Row().HTTP
	if own, ok := errors.AsType[*refusal](err); ok {
		status = own.status
	}
	if n, ok := e.Fields[retryAfter].(int); ok {
		w.Header().Set("Retry-After", strconv.Itoa(n))
	}
	body, err := json.Marshal(e.Body())
	if err != nil { // cannot happen: every field is text or a number
		d.Logger.Error("encode refusal", "error", err)
	}
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body))) // so the client need not wait for the end of its request
	control := http.NewResponseController(w)
	if r.ContentLength != 0 {
		// net/http reads a body that no handler has read, and waits for it.
		w.Header().Set("Connection", "close")
		_ = control.SetReadDeadline(time.Now().Add(restTime))
	}
	_ = control.SetWriteDeadline(time.Now().Add(pieceTime))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

type identityKey struct{}

// IdentityOf returns the identity of the caller of a request. ok is false if the request
// needed none and had none.
func IdentityOf(ctx context.Context) (id sandboxmcp.Identity, ok bool) {
	id, ok = ctx.Value(identityKey{}).(sandboxmcp.Identity)
	return id, ok
}

// WithIdentity returns a context of a request of that caller.
func WithIdentity(ctx context.Context, id sandboxmcp.Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}
