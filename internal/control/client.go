package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/sandboxmcp/sandboxmcp"
)

// maxPeers bounds how many sockets are looked at.
const maxPeers = 1024

// Client talks to one living server. Its methods may be called concurrently;
// each takes at most five seconds.
type Client struct {
	stateDir string
	name     string
	hello    Hello
	http     *http.Client
}

// Peers finds the living servers of a state directory, oldest first. It removes
// sockets of dead ones. The error names servers that live but do not answer
// (the others are returned beside it), or says why the directory cannot be
// read; one that is not there, or no directory, has no servers.
func Peers(ctx context.Context, stateDir string) ([]*Client, error) {
	st, err := os.Stat(stateDir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !st.IsDir() {
		return nil, nil
	}
	root, dir, err := openRunDir(stateDir, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(maxPeers)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read socket directory: %w", err)
	}
	var (
		mu   sync.Mutex // guards peers and mute
		wg   sync.WaitGroup
		mute []error
		out  []*Client
	)
	for _, name := range names {
		if !strings.HasSuffix(name, suffix) || strings.HasPrefix(name, ".") {
			continue
		}
		wg.Go(func() {
			c := newClient(stateDir, name)
			hello, err := c.Hello(ctx)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				c.hello = hello
				out = append(out, c)
			case errors.Is(err, syscall.ECONNREFUSED):
				_ = root.Remove(name)
			case errors.Is(err, fs.ErrNotExist):
			default:
				mute = append(mute, fmt.Errorf("server %s does not answer: %w", strings.TrimSuffix(name, suffix), err))
			}
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b *Client) int { return a.hello.StartedAt.Compare(b.hello.StartedAt) })
	return out, errors.Join(mute...)
}

func newClient(stateDir, name string) *Client {
	c := &Client{stateDir: stateDir, name: name}
	c.http = &http.Client{
		Timeout: callTimeout,
		Transport: &http.Transport{
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	dir, err := os.Open(c.stateDir + "/" + runDir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", address(dir, c.name))
	if err != nil {
		return nil, err
	}
	if uid, err := peerUID(conn); err != nil || !trusted(uid) {
		_ = conn.Close()
		return nil, errors.Join(fmt.Errorf("socket is held by user %d: %w", uid, fs.ErrPermission), err)
	}
	return conn, nil
}

// Peer tells which server this is, as it said when it was found.
func (c *Client) Peer() Hello { return c.hello }

// Hello asks the server who it is.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	var h Hello
	err := c.call(ctx, http.MethodGet, "/v1/hello", nil, &h)
	return h, err
}

// Stats asks what the server counts.
func (c *Client) Stats(ctx context.Context) (sandboxmcp.Stats, error) {
	var s sandboxmcp.Stats
	err := c.call(ctx, http.MethodGet, "/v1/stats", nil, &s)
	return s, err
}

// Queue asks for the state of admission.
func (c *Client) Queue(ctx context.Context) (sandboxmcp.QueueStats, error) {
	var q sandboxmcp.QueueStats
	err := c.call(ctx, http.MethodGet, "/v1/queue", nil, &q)
	return q, err
}

// Cancel asks the server to end one of its requests. It fails with
// request_not_found when the server does not have it.
func (c *Client) Cancel(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID) error {
	return c.call(ctx, http.MethodPost, "/v1/cancel", cancelRequest{Namespace: ns, RequestID: id}, nil)
}

// Request asks for a request of the server, or one that it can read in the
// state directory; the wait and the cancelling of q are not passed on. With
// q.Content the files come with their content, unless there is too much of it:
// see [Complete]. It fails with request_not_found when the server does not know
// the request.
func (c *Client) Request(ctx context.Context, q sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	form := url.Values{"namespace": {string(q.Namespace)}, "id": {string(q.RequestID)}, "content": {strconv.FormatBool(q.Content)}}
	var r sandboxmcp.Result
	data, err := c.ask(ctx, question{method: http.MethodGet, path: "/v1/request", query: form.Encode(), limit: maxResult})
	if err != nil {
		return r, err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // metadata is whatever it was
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("decode answer of /v1/request: %w", err)
	}
	return r, nil
}

// Complete reports whether the files of a result have their content.
func Complete(r sandboxmcp.Result) bool {
	return !slices.ContainsFunc(r.Artifacts, func(a sandboxmcp.Artifact) bool { return int64(len(a.ContentB64)) != a.SizeBytes })
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	data, err := c.ask(ctx, question{method: method, path: path, body: in, limit: maxResponse})
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("decode answer of %s: %w", path, err)
	}
	return nil
}

// question is one call, and how long its answer may be.
type question struct {
	method, path, query string
	body                any // nil: none
	limit               int64
}

func (c *Client) ask(ctx context.Context, q question) ([]byte, error) {
	path := q.path
	var body io.Reader = http.NoBody
	if q.body != nil {
		data, err := json.Marshal(q.body)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", path, err)
		}
		body = bytes.NewReader(data)
	}
	target := url.URL{Scheme: "http", Host: "control", Path: path, RawQuery: q.query}
	req, err := http.NewRequestWithContext(ctx, q.method, target.String(), body)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", path, err)
	}
	defer func() { _ = res.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(res.Body, q.limit+1))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", path, err)
	}
	if int64(len(data)) > q.limit {
		return nil, fmt.Errorf("answer of %s is longer than %d bytes", path, q.limit)
	}
	if res.StatusCode != http.StatusOK {
		return nil, failure(path, res.StatusCode, data)
	}
	return data, nil
}

// failure makes an error of an error body again. A code that this version does
// not know is no code of ours.
func failure(path string, status int, data []byte) error {
	fields := map[string]any{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("answer of %s is status %d without a body", path, status)
	}
	code, _ := fields["error"].(string)
	e := &sandboxmcp.Error{Code: sandboxmcp.Code(code)}
	e.Message, _ = fields["message"].(string)
	e.Hint, _ = fields["hint"].(string)
	if e.Code.Row().Code != e.Code {
		return fmt.Errorf("answer of %s is status %d with the unknown code %q", path, status, code)
	}
	for _, k := range []string{"error", "message", "hint"} {
		delete(fields, k)
	}
	if len(fields) > 0 {
		e.Fields = fields
	}
	return e
}
