package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp"
)

// Client talks to one living server. Its methods may be called concurrently.
// Those that only ask take at most five seconds, those that build a sandbox or
// move a file at most a minute, and [Client.Execute] as long as its context.
type Client struct {
	stateDir string
	name     string
	hello    Hello
	http     *http.Client
}

func newClient(stateDir, name string) *Client {
	c := &Client{stateDir: stateDir, name: name}
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
	err := c.get(ctx, "/v1/hello", nil, &h)
	return h, err
}

// Stats asks what the server counts.
func (c *Client) Stats(ctx context.Context) (sandboxmcp.Stats, error) {
	var s sandboxmcp.Stats
	err := c.get(ctx, "/v1/stats", nil, &s)
	return s, err
}

// Queue asks for the state of admission.
func (c *Client) Queue(ctx context.Context) (sandboxmcp.QueueStats, error) {
	var q sandboxmcp.QueueStats
	err := c.get(ctx, "/v1/queue", nil, &q)
	return q, err
}

// Cancel asks the server to end one of its requests. It fails with
// request_not_found when the server does not have it.
func (c *Client) Cancel(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.RequestID) error {
	return c.post(ctx, "/v1/cancel", cancelRequest{Namespace: ns, RequestID: id}, nil)
}

// Request asks for a request of the server, or one that it can read in the
// state directory; the wait and the cancelling of q are not passed on. With
// q.Content the files come with their content, unless there is too much of it:
// see [Complete]. It fails with request_not_found when the server does not know
// the request.
func (c *Client) Request(ctx context.Context, q sandboxmcp.Lookup) (sandboxmcp.Result, error) {
	form := url.Values{"namespace": {string(q.Namespace)}, "id": {string(q.RequestID)}, "content": {strconv.FormatBool(q.Content)}}
	var r sandboxmcp.Result
	err := c.call(ctx, question{method: http.MethodGet, path: "/v1/request", query: form, limit: maxResult, time: callTimeout, exact: true}, &r)
	return r, err
}

// Complete reports whether the files of a result have their content.
func Complete(r sandboxmcp.Result) bool {
	return !slices.ContainsFunc(r.Artifacts, func(a sandboxmcp.Artifact) bool { return int64(len(a.ContentB64)) != a.SizeBytes })
}
