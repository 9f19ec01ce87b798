package api

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
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// Client calls one running server. Its methods may be called concurrently. Methods that
// only read take at most five seconds, those that build a sandbox or transfer a file at
// most a minute. [Client.Execute] is bounded by its context, and the time that it takes to
// cancel a run.
type Client struct {
	stateDir string
	name     string
	base     string // of URLs
	hello    Hello
	strict   bool // talk only to a server of this process's very user, not to root's or of another
	http     *http.Client
	proof    func() (string, error) // see proofHeader
	patience time.Duration          // how long a cancelled run may take to end
}

func newClient(stateDir, name string) *Client {
	c := &Client{stateDir: stateDir, name: name, base: "http://sandboxmcp", patience: callTimeout}
	c.proof = sync.OnceValues(func() (string, error) { return readProof(stateDir, strings.TrimSuffix(name, suffix)) })
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext:            func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: 16 << 10,
			ExpectContinueTimeout:  callTimeout,
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
	if uid, err := peerUID(conn); err != nil || !trusted(uid) || c.strict && int(uid) != os.Geteuid() {
		_ = conn.Close()
		return nil, errors.Join(fmt.Errorf("socket is held by user %d: %w", uid, fs.ErrPermission), err)
	}
	return conn, nil
}

// Unreached reports whether a call failed before the server received any of it, so that a
// retry is safe.
func Unreached(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// Peer returns how the server identified itself when it was found.
func (c *Client) Peer() Hello { return c.hello }

// Hello asks the server to identify itself.
func (c *Client) Hello(ctx context.Context) (Hello, error) {
	var h Hello
	err := c.call(ctx, question{method: http.MethodGet, path: "/v1/hello", limit: maxResponse, time: callTimeout}, &h)
	return h, err
}

// Stop ends the server, with its runs and sessions. It returns when the server has begun to
// end. A server that serves an agent fails with access_denied.
func (c *Client) Stop(ctx context.Context) error {
	var out done
	return c.call(ctx, question{method: http.MethodPost, path: stopPath, limit: maxResponse, time: callTimeout}, &out)
}

// question is one HTTP request, with bounds on the size of its response and on its time.
type question struct {
	method, path string
	query        url.Values
	alike        string    // see [Client.ExecuteAlike]; empty: any server will do
	body         []byte    // nil: none, or stream
	stream       io.Reader // a body that is sent as it is read
	size         int64     // bytes of stream; -1: unknown
	limit        int64
	time         time.Duration
}

// naming adds the caller to a query. A server accepts an actor and a holder only from other servers.
func naming(query url.Values, who sandboxmcp.Caller) url.Values {
	if who.Actor != "" {
		query.Set(actorParameter, who.Actor)
	}
	if who.Holder != "" {
		query.Set(holderParameter, who.Holder)
	}
	if who.Namespace != "" {
		query.Set("namespace", string(who.Namespace))
	}
	return query
}

func (c *Client) call(ctx context.Context, q question, out any) error {
	ctx, cancel := context.WithTimeout(ctx, q.time)
	defer cancel()
	res, err := c.ask(ctx, q)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	data, err := whole(res.Body, q.path, q.limit)
	if err != nil {
		return err
	}
	if err := decodeExact(data, out); err != nil {
		return fmt.Errorf("decode answer of %s: %w", q.path, err)
	}
	return nil
}

// decodeExact decodes JSON. A number without a Go type keeps all its digits.
func decodeExact(data []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(out)
}

// ask sends a request. The caller must close the body of the response. An error response
// is returned as an error.
func (c *Client) ask(ctx context.Context, q question) (*http.Response, error) {
	var body io.Reader = http.NoBody
	switch {
	case q.stream != nil:
		body = q.stream
	case q.body != nil:
		body = bytes.NewReader(q.body)
	}
	target := c.base + q.path // escaped
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", q.path, err)
	}
	req.Header.Set("Content-Type", "application/json")
	proof, err := c.proof()
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", q.path, err)
	}
	if proof != "" {
		req.Header.Set(proofHeader, proof)
	}
	if q.alike != "" {
		req.Header.Set(alikeHeader, q.alike)
	}
	if q.stream != nil {
		if req.ContentLength = q.size; q.size == 0 {
			req.Body = http.NoBody
		}
		req.Header.Set("Expect", "100-continue") // the server can refuse it before the body is sent
	}
	res, err := c.http.Do(req)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("ask %s: %w", q.path, context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", q.path, err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	data, err := whole(res.Body, q.path, maxResponse)
	if err != nil {
		return nil, err
	}
	return nil, failure(q.path, res.StatusCode, data)
}

func whole(r io.Reader, path string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read answer of %s: %w", path, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("answer of %s is longer than %d bytes", path, limit)
	}
	return data, nil
}

// failure decodes the body of an error response.
func failure(path string, status int, data []byte) error {
	fields := map[string]any{}
	if err := decodeExact(data, &fields); err != nil {
		return fmt.Errorf("answer of %s is status %d without a body", path, status)
	}
	return coded(path, fields)
}

// coded turns an error body into an *Error. A code that this version does not know
// becomes a plain error.
func coded(path string, fields map[string]any) error {
	code, _ := fields["error"].(string)
	e := &sandboxmcp.Error{Code: sandboxmcp.Code(code)}
	e.Message, _ = fields["message"].(string)
	e.Hint, _ = fields["hint"].(string)
	if e.Code.Row().Code != e.Code {
		return fmt.Errorf("answer of %s has the unknown code %q", path, code)
	}
	for _, k := range []string{"error", "message", "hint"} {
		delete(fields, k)
	}
	if len(fields) > 0 {
		e.Fields = fields
	}
	return e
}
