package api

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sandboxmcp/sandboxmcp"
)

func naming(ns sandboxmcp.Namespace, id sandboxmcp.SessionID) url.Values {
	return url.Values{"namespace": {string(ns)}, "id": {string(id)}}
}

// Sessions lists the server's own living sessions, of every namespace for an
// empty one.
func (c *Client) Sessions(ctx context.Context, ns sandboxmcp.Namespace) ([]sandboxmcp.Session, error) {
	var l sessionList
	err := c.get(ctx, "/v1/sessions", url.Values{"namespace": {string(ns)}}, &l)
	return l.Sessions, err
}

// Session shows a session of the server. It fails with session_not_found when
// the server does not have it, or is too old to have any.
func (c *Client) Session(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (sandboxmcp.Session, error) {
	var s sandboxmcp.Session
	err := c.get(ctx, "/v1/session", naming(ns, id), &s)
	if sandboxmcp.CodeOf(err) == sandboxmcp.CodeNotFound {
		err = sandboxmcp.Errorf(sandboxmcp.CodeSessionNotFound, "server %s knows no sessions", c.hello.ID)
	}
	return s, err
}

// CreateSession makes a session in the server.
func (c *Client) CreateSession(ctx context.Context, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	var s sandboxmcp.Session
	err := c.work(ctx, "/v1/session/create", newSession(spec), &s)
	return s, err
}

// TerminateSession ends a session of the server.
func (c *Client) TerminateSession(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) error {
	return c.work(ctx, "/v1/session/terminate", sessionName{Namespace: ns, SessionID: id}, nil)
}

// Inspect asks what a namespace has in this server, or one session of it.
func (c *Client) Inspect(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (sandboxmcp.State, error) {
	var s sandboxmcp.State
	err := c.get(ctx, "/v1/inspect", naming(ns, id), &s)
	return s, err
}

// Bridge hands values to a session of the server.
func (c *Client) Bridge(ctx context.Context, b sandboxmcp.Bridge) (sandboxmcp.Bridged, error) {
	var done sandboxmcp.Bridged
	err := c.work(ctx, "/v1/bridge", bridgeRequest{Namespace: b.Namespace, Data: b.Data, From: b.From, To: b.To, Keys: b.Keys}, &done)
	return done, err
}

// SessionFiles lists the files of a session.
func (c *Client) SessionFiles(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) ([]sandboxmcp.SessionFile, error) {
	var l fileList
	err := c.get(ctx, "/v1/files", naming(ns, id), &l)
	return l.Artifacts, err
}

// ReadFile reads a file of a session, of at most limit bytes and at most [MaxFile].
func (c *Client) ReadFile(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, path string, limit int64) (sandboxmcp.SessionFile, []byte, error) {
	form := naming(ns, id)
	form.Set("path", path)
	form.Set("limit", strconv.FormatInt(min(limit, MaxFile), 10))
	var f fileContent
	err := c.call(ctx, question{method: http.MethodGet, path: "/v1/file", query: form, limit: maxResponse + 2*MaxFile, time: workTimeout}, &f)
	return f.SessionFile, f.Content, err
}

// Upload puts a file into a session and tells its path there. What is in it is
// read from content as it is sent, size bytes, or to its end when size is -1;
// Content of u means nothing. An error of content is returned wrapped.
func (c *Client) Upload(ctx context.Context, u sandboxmcp.Upload, content io.Reader, size int64) (sandboxmcp.SessionID, string, error) {
	form := naming(u.Namespace, u.SessionID)
	form.Set("name", u.Name)
	form.Set("overwrite", strconv.FormatBool(u.Overwrite))
	var done uploaded
	err := c.call(ctx, question{method: http.MethodPut, path: "/v1/file", query: form, stream: content, size: size, limit: maxResponse, time: workTimeout}, &done)
	return done.SessionID, done.Path, err
}

// RemoveFile removes a file of a session.
func (c *Client) RemoveFile(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID, path string) error {
	return c.post(ctx, "/v1/file/remove", sessionName{Namespace: ns, SessionID: id, Path: path}, nil)
}
