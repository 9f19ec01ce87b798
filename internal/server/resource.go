package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/stream"
)

// Templates of the server's resources.
const (
	runTemplate      = "run://{request_id}/{+part}"
	artifactTemplate = "artifact://{id}/{+path}"
)

func (s *Server) addResources() {
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name:        "run_output",
		Title:       "Whole output of a run",
		Description: "part is stdout or stderr, whole as it was kept or so far, results, the rich results as JSON, in which large pictures are uris, or result, everything as JSON",
		URITemplate: runTemplate,
	}, s.readResource)
	s.mcp.AddResourceTemplate(&mcp.ResourceTemplate{
		Name:        "artifact",
		Title:       "File that a run left",
		Description: "The uri of an artifact in a result; path is percent-encoded, below /mnt/data. ?offset=N&max_bytes=N returns a part",
		URITemplate: artifactTemplate,
	}, s.readResource)
}

// readResource answers resources/read. A resource of another namespace gets the same answer
// as one that does not exist.
func (s *Server) readResource(sent context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	ctx, free := withRoot(sent)
	defer free()
	uri := req.Params.URI
	var content *mcp.ResourceContents
	var in *admitted
	id, err := s.identityOf(ctx, req.Extra)
	if err == nil {
		in, err = s.enterCall(ctx, inCall{large: true, link: linkFor(sent, req.Extra), cancel: free}, id)
	}
	if err == nil {
		defer answered(sent, in.leave)
		defer in.sends()
		content, err = s.resource(ctx, req.Extra, uri)
		err = in.failure(err)
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

func (s *Server) resource(ctx context.Context, extra *mcp.RequestExtra, uri string) (*mcp.ResourceContents, error) {
	bare, piece, err := cutPart(uri)
	if err != nil {
		return nil, err
	}
	scheme, id, path, ok := splitURI(bare)
	if !ok {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "%s is no resource", sandboxmcp.Quote(uri))
	}
	request, err := sandboxmcp.ParseRequestID(id)
	if err != nil {
		return nil, err
	}
	peer, err := s.identityOf(ctx, extra)
	if err != nil {
		return nil, err
	}
	who, err := peer.Caller("")
	if err != nil {
		return nil, err
	}
	switch {
	case scheme == "artifact":
		data, mime, err := s.artifact(ctx, who, request, path, piece)
		if err != nil {
			return nil, err
		}
		return contents(data, mime), nil
	case path == "stdout" || path == "stderr":
		data, err := s.output(ctx, who, request, path)
		if err != nil {
			return nil, err
		}
		return contents(piece.of(data), "text/plain"), nil
	}
	return s.resultPart(ctx, who, request, path)
}

// output returns a stream of a run: what is kept of it, or what came so far.
func (s *Server) output(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.RequestID, name string) ([]byte, error) {
	data, err := s.engine.Output(ctx, who, id, name)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		return data, err
	}
	r, lookup := s.engine.Lookup(ctx, who, sandboxmcp.Lookup{RequestID: id})
	switch {
	case lookup != nil:
		return nil, err
	case r.Status != sandboxmcp.StatusRunning: // it has ended in between
		return s.engine.Output(ctx, who, id, name)
	case name == "stderr":
		return []byte(r.Stderr), nil
	}
	return []byte(r.Stdout), nil
}

// resultPart returns the result of a run, its rich results, or a picture of these.
func (s *Server) resultPart(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.RequestID, path string) (*mcp.ResourceContents, error) {
	place, isPicture := strings.CutPrefix(path, "results/")
	if path != "result" && path != "results" && !isPicture {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "a run has no part %s", sandboxmcp.Quote(path))
	}
	r, err := s.engine.Lookup(ctx, who, sandboxmcp.Lookup{RequestID: id})
	if err != nil {
		return nil, err
	}
	if isPicture {
		return pictureAt(r.Results, place)
	}
	r.Results = withPictureURIs(id, r.Results)
	var whole any = complete(r)
	if path == "results" {
		whole = some(r.Results)
	}
	data, err := encode(whole)
	if err != nil {
		return nil, err
	}
	return contents(data, "application/json"), nil
}

// withPictureURIs returns rich results with the URI of each picture in its place, beyond the
// smallest ones. Base64 in JSON is the most expensive form of a picture.
func withPictureURIs(id sandboxmcp.RequestID, list []sandboxmcp.RichResult) []sandboxmcp.RichResult {
	out := make([]sandboxmcp.RichResult, 0, len(list))
	left := inlineTotal
	for i, bundle := range list {
		bundle = maps.Clone(bundle)
		for kind, v := range bundle {
			text, ok := v.(string)
			if _, picture := codecFor(kind); !ok || !picture {
				continue
			}
			if len(text) > left {
				bundle[kind] = runURI(id, "results/"+strconv.Itoa(i)+"/"+kind)
				continue
			}
			left -= len(text)
		}
		out = append(out, bundle)
	}
	return out
}

// pictureAt returns the picture at INDEX/TYPE.
func pictureAt(list []sandboxmcp.RichResult, place string) (*mcp.ResourceContents, error) {
	index, kind, _ := strings.Cut(place, "/")
	i, err := strconv.Atoi(index)
	if _, picture := codecFor(kind); err == nil && picture && i >= 0 && i < len(list) {
		text, _ := list[i][kind].(string)
		if data, err := base64.StdEncoding.DecodeString(text); err == nil && len(data) > 0 {
			return &mcp.ResourceContents{MIMEType: kind, Blob: data}, nil
		}
	}
	return nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "the run has no picture %s", sandboxmcp.Quote(place))
}

// artifact returns a part of a file of a run, or of a session by its id.
func (s *Server) artifact(ctx context.Context, who sandboxmcp.Caller, id sandboxmcp.RequestID, path string, piece part) (data []byte, mime string, err error) {
	a, err := s.engine.ArtifactContent(ctx, who, id, path)
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		return piece.of(a.ContentB64), a.MIMEType, err
	}
	f, data, err := s.readPart(ctx, who, sandboxmcp.SessionID(id), workDir+"/"+path, piece)
	return part{most: piece.most}.of(data), f.MIMEType, err
}

// part is a range of bytes of a resource.
type part struct {
	offset, most int64 // most 0: to the end
}

// cutPart splits the query offset and max_bytes from a URI.
func cutPart(uri string) (string, part, error) {
	uri, query, found := strings.Cut(uri, "?")
	var p part
	if !found {
		return uri, p, nil
	}
	values, err := url.ParseQuery(query)
	for name, list := range values {
		into, known := map[string]*int64{"offset": &p.offset, "max_bytes": &p.most}[name]
		if !known {
			return uri, p, partError(name)
		}
		n, bad := strconv.ParseInt(list[0], 10, 64)
		if bad != nil || n < 0 {
			return uri, p, partError(name)
		}
		*into = n
	}
	if err != nil {
		return uri, p, partError("query")
	}
	return uri, p, nil
}

func partError(name string) error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s in the uri is not known, or no number from 0", sandboxmcp.Quote(name)).WithHint("use ?offset=N&max_bytes=N, in bytes")
}

// bytes returns the part of data.
func (p part) bytes(data []byte) []byte {
	data = data[min(p.offset, int64(len(data))):]
	if p.most == 0 {
		return data
	}
	return data[:min(p.most, int64(len(data)))]
}

// of returns the part of data. It ends at a whole UTF-8 character if data is text.
func (p part) of(data []byte) []byte {
	cut := p.bytes(data)
	if n := stream.Unfinished(cut); p.most > 0 && n < len(cut) {
		return cut[:len(cut)-n]
	}
	return cut
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
	if len(data) > 0 && readable(data) {
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
