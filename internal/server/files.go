package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
	"github.com/sandboxmcp/sandboxmcp/internal/listen"
	"github.com/sandboxmcp/sandboxmcp/internal/stream"
)

// FileSource is the part of the engine that the artifact server uses.
type FileSource interface {
	// ReadFile is the method of [sandboxmcp.Sessions].
	ReadFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, []byte, error)
	// OpenFile returns a file of a session of at most limit bytes as a copy. The caller closes it.
	// It fails as ReadFile does.
	OpenFile(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, io.ReadSeekCloser, error)
	// ArtifactContent is the method of [sandboxmcp.Runs].
	ArtifactContent(ctx context.Context, c sandboxmcp.Caller, id sandboxmcp.RequestID, path string) (sandboxmcp.Artifact, error)
}

// FilesConfig configures [Files].
type FilesConfig struct {
	Engine FileSource   // required
	Links  *Links       // required
	Names  []string     // host names of the listener, without its addresses
	Logger *slog.Logger // nil: nothing is logged
}

// files serves files of sessions and of ended runs to browsers.
type files struct {
	FilesConfig
	sendings *sendings // files in memory
	copies   *sendings // larger ones, on disk
}

// Files returns the handler of GET and HEAD /files/{session_id}/{path} and of /healthz. It
// serves a file to a request with a valid signature. Without a signature it serves only
// local programs, only files of the server's own namespace, and only for session ids that
// the server made, because these cannot be guessed. Behind a door, a request without a signature
// reads the files of its caller's namespaces. It refuses requests for another host
// name and from another origin, so that a web page cannot read files by DNS rebinding.
// Types that a browser would execute are sent as downloads, and every answer has a content
// security policy that forbids execution.
func Files(c FilesConfig) http.Handler {
	f := &files{FilesConfig: c}
	f.sendings = newSendings(heldFiles * f.inMemory())
	f.copies = newSendings(copiedFiles * f.Links.most.Load())
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
	if err := door.CheckOrigin(r, f.Names, nil); err != nil {
		refuse(w, told(f.Logger, "http", err))
		return
	}
	rest, isFile := strings.CutPrefix(r.URL.EscapedPath(), FilesPath)
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

// inMemory is the size of the largest file that is sent from memory.
func (f *files) inMemory() int64 { return min(f.Links.most.Load(), MaxLinked) }

func (f *files) serve(w http.ResponseWriter, r *http.Request, rest string) {
	a, err := f.admit(r, rest)
	if err == nil {
		err = f.sendSmall(w, r, a)
	}
	if e, ok := errors.AsType[*sandboxmcp.Error](err); ok && e.Code == sandboxmcp.CodeArtifactTooLarge {
		if size := int64(count(e.Fields["size_bytes"])); size > f.inMemory() && size <= f.Links.most.Load() {
			err = f.sendLarge(w, r, a, size)
		}
	}
	if err != nil {
		refuse(w, told(f.Logger, FilesPath, err))
	}
}

// sendSmall sends a file from memory. It returns an error if it has sent nothing.
func (f *files) sendSmall(w http.ResponseWriter, r *http.Request, a asked) error {
	d, ctx, err := f.sendings.begin(r.Context(), a.namespace, f.inMemory(), w)
	if err != nil { // the client has disconnected
		return nil //nolint:nilerr // nobody reads an answer
	}
	defer d.end()
	got, data, err := f.read(ctx, a)
	if err != nil {
		return d.failure(err)
	}
	d.shrink(int64(len(data)))
	if !isSum(got.SHA256) {
		sum := sha256.Sum256(data)
		got.SHA256 = hex.EncodeToString(sum[:])
	}
	d.send(w, r, got, data, bytes.NewReader(data))
	return nil
}

// sniffedBytes is how much of a large file decides how it is presented.
const sniffedBytes = 4 << 10

// sendLarge sends a file of size bytes of a live session from a copy on disk. It returns an error
// if it has sent nothing.
func (f *files) sendLarge(w http.ResponseWriter, r *http.Request, a asked, size int64) error {
	d, ctx, err := f.copies.begin(r.Context(), a.namespace, size, w)
	if err != nil { // the client has disconnected
		return nil //nolint:nilerr // nobody reads an answer
	}
	defer d.end()
	got, content, err := f.Engine.OpenFile(ctx, a.caller(), a.id, workDir+"/"+a.path, size)
	if err != nil {
		return d.failure(err)
	}
	defer content.Close()
	head := make([]byte, sniffedBytes)
	n, err := io.ReadFull(content, head)
	if err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		_, err = content.Seek(0, io.SeekStart)
	}
	if err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "the copy of the file cannot be read").WithCause(err)
	}
	head = head[:n]
	d.send(w, r, got, head[:n-stream.Unfinished(head)], content)
	return nil
}

// send sends content, which begins with head, or the part of it that the request asks for.
func (d *sending) send(w http.ResponseWriter, r *http.Request, got sandboxmcp.SessionFile, head []byte, content io.ReadSeeker) {
	kind, disposition := presented(r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:], got.MIMEType, head)
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", disposition)
	h.Set("ETag", `"`+got.SHA256+`"`)
	http.ServeContent(&contentWriter{ResponseWriter: w, sending: d}, r, "", time.Time{}, content)
}

// asked is a file that a request may read.
type asked struct {
	namespace sandboxmcp.Namespace
	id        sandboxmcp.SessionID
	path      string // path below /mnt/data
}

// caller is the caller that reads the file.
func (a asked) caller() sandboxmcp.Caller {
	return sandboxmcp.Caller{Namespace: a.namespace, Actor: "http"}
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
	if id, ok := door.IdentityOf(r.Context()); ok {
		c, err := id.Caller(query.Get("ns"))
		a.namespace = c.Namespace
		return a, err
	}
	switch {
	case !door.Direct(r):
		return asked{}, sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the request has no signature").WithHint(wholeLink)
	case a.namespace != f.Links.own || !serverMade(id):
		return asked{}, notThere(id).WithHint(wholeLink)
	}
	return a, nil
}

func notThere(id sandboxmcp.SessionID) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "session %s is not known", sandboxmcp.Quote(string(id)))
}

// read returns a file of a session, or what is kept of an ended session or run. Only a signed
// link can name a request id, because serverMade refuses it.
func (f *files) read(ctx context.Context, a asked) (sandboxmcp.SessionFile, []byte, error) {
	who := a.caller()
	got, data, err := f.Engine.ReadFile(ctx, who, a.id, workDir+"/"+a.path, f.inMemory())
	if code := sandboxmcp.CodeOf(err); code != sandboxmcp.CodeSessionNotFound && code != sandboxmcp.CodeSessionExpired {
		return got, data, err
	}
	kept, lookup := f.Engine.ArtifactContent(ctx, who, sandboxmcp.RequestID(a.id), a.path)
	switch {
	case sandboxmcp.CodeOf(lookup) == sandboxmcp.CodeRequestNotFound:
		return got, nil, err
	case lookup != nil:
		return got, nil, lookup
	case kept.SizeBytes > f.Links.most.Load():
		return got, nil, sandboxmcp.Errorf(sandboxmcp.CodeArtifactTooLarge, "the file has %d bytes, above the limit of %d bytes", kept.SizeBytes, f.Links.most.Load()).
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

// Time limits of the server of files.
const (
	requestTimeout  = 10 * time.Second
	responseTimeout = 30 * time.Second // time to send an answer without a file; files have pieceTimeout
)

// ServeFiles serves h on l as [listen.Serve] does.
func ServeFiles(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) (stop func()) {
	return listen.Serve(ctx, l, listen.Served{Handler: h, Logger: log, RequestTimeout: requestTimeout, ResponseTimeout: responseTimeout})
}
