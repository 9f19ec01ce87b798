package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

func (s *Server) addResources() {
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name:        "run_output",
		Title:       "Whole output of a run",
		Description: "part is stdout or stderr, whole as it was kept, or results, the rich results as JSON",
		URITemplate: "run://{request_id}/{part}",
	}, s.readResource)
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name:        "artifact",
		Title:       "File that a run left",
		Description: "The uri of an artifact in a result; path is percent-encoded, below /mnt/data",
		URITemplate: "artifact://{id}/{+path}",
	}, s.readResource)
}

// readResource answers resources/read. What is not there and what belongs to
// somebody else are told alike.
func (s *Server) readResource(sent context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	ctx, free := withRoot(sent)
	defer free()
	uri := req.Params.URI
	var content *mcp.ResourceContents
	leave, err := s.load.enter(ctx, 0, true)
	if err == nil {
		defer answered(sent, leave)
		content, err = s.resource(ctx, uri)
	}
	if err != nil {
		e := s.failure("resources/read", err)
		body, encodeErr := encode(e.Body())
		switch {
		case e.Code == sandboxmcp.CodeRequestNotFound || e.Code == sandboxmcp.CodeNotFound || e.Code == sandboxmcp.CodeSessionNotFound || e.Code == sandboxmcp.CodeInvalidPath:
			return nil, notFound(uri)
		case encodeErr != nil:
			return nil, notFound(uri)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: string(e.Code) + ": " + e.Message, Data: body}
	}
	content.URI = uri
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{content}}, nil
}

func (s *Server) resource(ctx context.Context, uri string) (*mcp.ResourceContents, error) {
	scheme, id, path, ok := splitURI(uri)
	if !ok {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "%s is no resource", sandboxmcp.Quote(uri))
	}
	request, err := sandboxmcp.ParseRequestID(id)
	if err != nil {
		return nil, err
	}
	who, err := s.identity.Caller("")
	if err != nil {
		return nil, err
	}
	switch {
	case scheme == "artifact":
		a, err := s.engine.ArtifactContent(ctx, who, request, path)
		if err != nil {
			return nil, err
		}
		return contents(a.ContentB64, a.MIMEType), nil
	case path == "stdout" || path == "stderr":
		data, err := s.engine.Output(ctx, who, request, path)
		if err != nil {
			return nil, err
		}
		return contents(data, "text/plain"), nil
	case path == "results":
		r, err := s.engine.Lookup(ctx, who, sandboxmcp.Lookup{RequestID: request})
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(some(r.Results))
		if err != nil {
			return nil, err
		}
		return contents(data, "application/json"), nil
	}
	return nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "a run has no part %s", sandboxmcp.Quote(path))
}

// splitURI takes run://ID/PART and artifact://ID/PATH apart. It is no general
// URI parser: what we did not make need not be understood.
func splitURI(uri string) (scheme, id, path string, ok bool) {
	scheme, rest, found := strings.Cut(uri, "://")
	if !found || scheme != "run" && scheme != "artifact" {
		return "", "", "", false
	}
	id, rest, found = strings.Cut(rest, "/")
	if !found || rest == "" {
		return "", "", "", false
	}
	path, err := url.PathUnescape(rest)
	return scheme, id, path, err == nil
}

// contents is data as text where it is text, else as a blob. An empty text has
// no field of its own in the SDK's form, so it is an empty blob.
func contents(data []byte, mime string) *mcp.ResourceContents {
	if len(data) > 0 && utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		return &mcp.ResourceContents{MIMEType: mime, Text: string(data)}
	}
	if data == nil {
		data = []byte{}
	}
	return &mcp.ResourceContents{MIMEType: mime, Blob: data}
}

// notFound is the SDK's error for it, with data that is JSON whatever the URI.
func notFound(uri string) error {
	data, err := json.Marshal(map[string]string{"uri": clip(uri, 2000)})
	if err != nil {
		data = nil
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found", Data: data}
}
