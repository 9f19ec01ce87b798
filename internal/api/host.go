package api

import (
	"context"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

type pathIn struct {
	Path string `query:"path"`
}

// Routes of host access. They are part of the table of routes.
var (
	askHostRoute = route[body[sandboxmcp.HostAsk], sandboxmcp.AccessAnswer]{
		method: "POST", path: "/v1/host/access/requests", slow: true, wait: func(in body[sandboxmcp.HostAsk]) time.Duration { return in.Value.Wait }, do: withBody(sandboxmcp.Service.RequestHostAccess),
	}
	execHostRoute = route[body[sandboxmcp.HostCommand], sandboxmcp.HostOutput]{
		method: "POST", path: "/v1/host/exec", slow: true, wait: func(in body[sandboxmcp.HostCommand]) time.Duration { return in.Value.Timeout }, do: withBody(sandboxmcp.Service.ExecHost),
	}
	readHostRoute = route[body[sandboxmcp.HostRead], sandboxmcp.HostContent]{
		method: "POST", path: "/v1/host/file/read", answer: maxResponse + 2*MaxFile, slow: true, do: withBody(sandboxmcp.Service.ReadHostFile),
	}
	writeHostRoute = route[body[sandboxmcp.HostWrite], sandboxmcp.HostWritten]{
		method: "POST", path: "/v1/host/file", body: maxBridge, finish: true, slow: true, do: withBody(sandboxmcp.Service.WriteHostFile),
	}
	listHostRoute = route[pathIn, sandboxmcp.HostListing]{
		method: "GET", path: "/v1/host/files", slow: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in pathIn) (sandboxmcp.HostListing, error) {
			return s.ListHostFiles(ctx, c, in.Path)
		},
	}
	copyHostRoute = route[body[sandboxmcp.HostCopy], sandboxmcp.HostCopied]{
		method: "POST", path: "/v1/host/file/copy", slow: true, do: withBody(sandboxmcp.Service.CopyHostFile),
	}
)

// ExecHost implements [sandboxmcp.Machine].
func (c *Client) ExecHost(ctx context.Context, who sandboxmcp.Caller, cmd sandboxmcp.HostCommand) (sandboxmcp.HostOutput, error) {
	return execHostRoute.call(ctx, c, who, body[sandboxmcp.HostCommand]{cmd})
}

// RequestHostAccess implements [sandboxmcp.Machine].
func (c *Client) RequestHostAccess(ctx context.Context, who sandboxmcp.Caller, ask sandboxmcp.HostAsk) (sandboxmcp.AccessAnswer, error) {
	return askHostRoute.call(ctx, c, who, body[sandboxmcp.HostAsk]{ask})
}

// DecideHostAccess implements [sandboxmcp.Machine].
func (c *Client) DecideHostAccess(ctx context.Context, who sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	return decideHostRoute.call(ctx, c, who, body[sandboxmcp.AccessDecision]{d})
}

// RevokeHostAccess implements [sandboxmcp.Machine].
func (c *Client) RevokeHostAccess(ctx context.Context, who sandboxmcp.Caller, pattern string) (sandboxmcp.AccessRevoked, error) {
	return revokeHostRoute.call(ctx, c, who, subjectIn{pattern})
}

// HostAccess implements [sandboxmcp.Machine].
func (c *Client) HostAccess(ctx context.Context, who sandboxmcp.Caller) (sandboxmcp.HostAccess, error) {
	return hostAccessRoute.call(ctx, c, who, none{})
}

// ReadHostFile implements [sandboxmcp.Machine].
func (c *Client) ReadHostFile(ctx context.Context, who sandboxmcp.Caller, r sandboxmcp.HostRead) (sandboxmcp.HostContent, error) {
	return readHostRoute.call(ctx, c, who, body[sandboxmcp.HostRead]{r})
}

// WriteHostFile implements [sandboxmcp.Machine].
func (c *Client) WriteHostFile(ctx context.Context, who sandboxmcp.Caller, w sandboxmcp.HostWrite) (sandboxmcp.HostWritten, error) {
	return writeHostRoute.call(ctx, c, who, body[sandboxmcp.HostWrite]{w})
}

// ListHostFiles implements [sandboxmcp.Machine].
func (c *Client) ListHostFiles(ctx context.Context, who sandboxmcp.Caller, path string) (sandboxmcp.HostListing, error) {
	return listHostRoute.call(ctx, c, who, pathIn{path})
}

// CopyHostFile implements [sandboxmcp.Machine].
func (c *Client) CopyHostFile(ctx context.Context, who sandboxmcp.Caller, cp sandboxmcp.HostCopy) (sandboxmcp.HostCopied, error) {
	return copyHostRoute.call(ctx, c, who, body[sandboxmcp.HostCopy]{cp})
}
