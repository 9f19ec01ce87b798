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

// readResource answers resources/read. A resource of another namespace gets the same answer
// as one that does not exist.
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

// splitURI parses run://ID/PART and artifact://ID/PATH. It accepts only URIs in the form that
// this server makes.
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

// contents returns data as text if it is text, or else as a blob. Empty text is returned as
// an empty blob, because the SDK leaves out an empty text field.
func contents(data []byte, mime string) *mcp.ResourceContents {
	if len(data) > 0 && utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		return &mcp.ResourceContents{MIMEType: mime, Text: string(data)}
	}
	if data == nil {
		data = []byte{}
	}
	return &mcp.ResourceContents{MIMEType: mime, Blob: data}
}

// notFound returns the SDK's error for an unknown resource, with data that is valid JSON for
// any URI.
func notFound(uri string) error {
	data, err := json.Marshal(map[string]string{"uri": clip(uri, 2000)})
	if err != nil {
		data = nil
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found", Data: data}
}
