package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// FileSource is the part of the engine that the artifact server uses.
type FileSource interface {
	// ReadFile is the method of [sandboxmcp.Sessions].
	ReadFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, []byte, error)
	// ArtifactContent is the method of [sandboxmcp.Runs].
	ArtifactContent(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID, path string) (sandboxmcp.Artifact, error)
}

// FilesConfig configures [Files].
type FilesConfig struct {
	Engine   FileSource   // required
	Links    *Links       // required
	MaxBytes int64        // bytes of one file; 0: [DefaultMaxRead]
	Names    []string     // host names of the listener, without its addresses
	Logger   *slog.Logger // nil: nothing is logged
}

// files serves files of sessions and of ended runs to browsers.
type files struct {
	FilesConfig
	sendings *sendings
}

// Files returns the handler of GET and HEAD /files/{session_id}/{path} and of /healthz. It
// serves a file to a request with a valid signature. Without a signature it serves only
// local programs, only files of the server's own namespace, and only for session ids that
// the server made, because these cannot be guessed. It refuses requests for another host
// name and from another origin, so that a web page cannot read files by DNS rebinding.
// Types that a browser would execute are sent as downloads, and every answer has a content
// security policy that forbids execution.
func Files(c FilesConfig) http.Handler {
	f := &files{FilesConfig: c}
	if f.MaxBytes <= 0 {
		f.MaxBytes = DefaultMaxRead
	}
	f.sendings = newSendings(heldFiles * f.MaxBytes)
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	return f
}

// ServeHTTP answers one request. It reads the path as sent, which a router would clean.
func (f *files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			id := incident()
			f.Logger.Error("request panicked", "incident", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			refuse(w, internalError(id))
		}
	}()
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "private, no-store")
	if err := checkOrigin(r, f.Names); err != nil {
		refuse(w, told(f.Logger, "http", err))
		return
	}
	rest, isFile := strings.CutPrefix(r.URL.EscapedPath(), filesRoute)
	switch health := r.URL.Path == "/healthz"; {
	case !isFile && !health:
		refuse(w, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "there is nothing here").WithHint("files are at /files/{session_id}/{filename}"))
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		refuseWith(w, http.StatusMethodNotAllowed, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the method is not GET or HEAD").WithHint("use GET"))
	case health:
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	default:
		f.serve(w, r, rest)
	}
}

func (f *files) serve(w http.ResponseWriter, r *http.Request, rest string) {
	a, err := f.admit(r, rest)
	if err != nil {
		refuse(w, told(f.Logger, filesRoute, err))
		return
	}
	d, err := f.sendings.begin(r.Context(), f.MaxBytes, w)
	if err != nil { // the client has disconnected
		return
	}
	defer d.end()
	got, data, err := f.read(r.Context(), a)
	if err != nil {
		refuse(w, told(f.Logger, filesRoute, err))
		return
	}
	d.shrink(int64(len(data)))
	if !isSum(got.SHA256) {
		sum := sha256.Sum256(data)
		got.SHA256 = hex.EncodeToString(sum[:])
	}
	name := a.path[strings.LastIndexByte(a.path, '/')+1:]
	kind, disposition := presented(name, got.MIMEType, data)
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", disposition)
	h.Set("ETag", `"`+got.SHA256+`"`)
	http.ServeContent(&contentWriter{ResponseWriter: w, sending: d}, r, "", time.Time{}, bytes.NewReader(data))
}

// asked is a file that a request may read.
type asked struct {
	namespace sandboxmcp.Namespace
	id        sandboxmcp.SessionID
	path      string // path below /mnt/data
}

// admit returns the file that a request names, or an error if the request may not read it.
// It does not check whether the file exists, so a refusal reveals nothing about that.
func (f *files) admit(r *http.Request, rest string) (asked, error) {
	first, rest, _ := strings.Cut(rest, "/")
	id, err := sandboxmcp.ParseSessionID(first)
	if err != nil {
		return asked{}, err
	}
	path, err := unescapePath(rest)
	if err != nil {
		return asked{}, err
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return asked{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the query cannot be decoded")
	}
	a := asked{namespace: f.Links.own, id: id, path: path}
	if ns, ok := query["ns"]; ok {
		if a.namespace, err = sandboxmcp.ParseNamespace(ns[0]); err != nil {
			return asked{}, err
		}
	}
	wholeLink := "use the download_url as it was given, signature included"
	if sig, ok := query["sig"]; ok {
		if len(sig) != 1 || !f.Links.signed(a.namespace, string(id), path, sig[0]) {
			return asked{}, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the signature does not open this file").WithHint(wholeLink)
		}
		return a, nil
	}
	switch {
	case !local(r):
		return asked{}, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the request has no signature").WithHint(wholeLink)
	case a.namespace != f.Links.own || !serverMade(id):
		return asked{}, notThere(id).WithHint(wholeLink)
	}
	return a, nil
}

func notThere(id sandboxmcp.SessionID) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "session %s is not known", sandboxmcp.Quote(string(id)))
}

// read returns a file of a session, or of an ended run by its request id. Only a signed link
// can name a request id, because serverMade refuses it.
func (f *files) read(ctx context.Context, a asked) (sandboxmcp.SessionFile, []byte, error) {
	who := sandboxmcp.Caller{Namespace: a.namespace, Actor: "http"}
	got, data, err := f.Engine.ReadFile(ctx, who, a.id, workDir+"/"+a.path, f.MaxBytes)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionNotFound {
		return got, data, err
	}
	kept, lookup := f.Engine.ArtifactContent(ctx, who, sandboxmcp.RequestID(a.id), a.path)
	switch {
	case sandboxmcp.CodeOf(lookup) == sandboxmcp.CodeRequestNotFound:
		return got, nil, err
	case lookup != nil:
		return got, nil, lookup
	case kept.SizeBytes > f.MaxBytes:
		return got, nil, sandboxmcp.Errorf(sandboxmcp.CodeArtifactTooLarge, "the file has %d bytes, above the limit of %d bytes", kept.SizeBytes, f.MaxBytes).
			With("size_bytes", kept.SizeBytes)
	}
	return sandboxmcp.SessionFile{MIMEType: kept.MIMEType, SHA256: kept.SHA256}, kept.ContentB64, nil
}

// unescapePath decodes each part of a path on its own, so that an encoded slash stays within
// its part and can be refused.
func unescapePath(escaped string) (string, error) {
	bad := sandboxmcp.Errorf(sandboxmcp.CodeInvalidPath, "the path %s cannot name a file", sandboxmcp.Quote(escaped))
	parts := strings.Split(escaped, "/")
	for i, p := range parts {
		part, err := url.PathUnescape(p)
		if err != nil || strings.Contains(part, "/") {
			return "", bad
		}
		parts[i] = part
	}
	path := strings.Join(parts, "/")
	if clean, ok := servable(path); !ok || clean != path {
		return "", bad
	}
	return path, nil
}

// serverMade reports whether an id has the form of an id that the server made. Those have 96
// random bits. An id that a caller chose may be guessable, such as "default".
func serverMade(id sandboxmcp.SessionID) bool {
	hexDigits, ok := strings.CutPrefix(string(id), "sess_")
	return ok && len(hexDigits) == 24 && isHex(hexDigits)
}

func isSum(s string) bool { return len(s) == 2*sha256.Size && isHex(s) }

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// local reports whether a request comes directly from a program on this machine, not through
// a proxy.
func local(r *http.Request) bool {
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip", "Via"} {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback() && listenAddr(r).IsLoopback()
}

// listenAddr returns the address on which a request arrived, or the zero value.
func listenAddr(r *http.Request) netip.Addr {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.Addr{}
	}
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return p.Addr().Unmap().WithZone("")
}

// checkOrigin refuses a request for another host name, and one from a page of another origin.
func checkOrigin(r *http.Request, names []string) error {
	if !ownHost(r, names) {
		return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "host %s is not this server", sandboxmcp.Quote(r.Host)).
			WithHint("use the address that the server listens on")
	}
	for _, origin := range r.Header.Values("Origin") {
		if !strings.EqualFold(origin, "http://"+r.Host) {
			return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "requests from the origin %s are not allowed", sandboxmcp.Quote(origin)).
				WithHint("open the address itself")
		}
	}
	return nil
}

// ownHost reports whether the Host header names this listener. It accepts the address on
// which the request arrived, the names in names, and for a loopback listener "localhost"
// and any loopback address. The port may differ, as it does behind a tunnel.
func ownHost(r *http.Request, names []string) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	} else {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if host == "" {
		return false
	}
	if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) }) {
		return true
	}
	at := listenAddr(r)
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap().WithZone("")
		return ip == at || ip.IsLoopback() && at.IsLoopback()
	}
	return strings.EqualFold(host, "localhost") && at.IsLoopback()
}

// refuse responds with the product's error body.
func refuse(w http.ResponseWriter, e *sandboxmcp.Error) { refuseWith(w, e.Code.Row().HTTP, e) }

func refuseWith(w http.ResponseWriter, status int, e *sandboxmcp.Error) {
	writeJSON(w, status, e.Body())
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := encode(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"internal","message":"an internal error occurred","hint":""}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The write fails only if the client has disconnected.
	_, _ = w.Write(append(body, '\n')) //nolint:gosec // G705: JSON, never sniffed, under a policy that runs nothing
}
