package server

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// Limits of an answer to a model. Everything that is left out can be read as a resource.
//
// Characters are counted as in the JSON text, where a line break has two. Hosts count in
// the same way and cut longer answers: one keeps the first 8,000 and last 32,000 characters
// of an answer over 40,000, another the first 2,000 of one over 50,000.
const (
	fullChars    = 39_000   // characters of both streams in an answer in full; run:// has the rest
	costBound    = 64_000   // characters up to which costs are counted
	minStreams   = 6_000    // characters that stdout and stderr together get at least
	resultChars  = 8_000    // characters of all values in results of a small answer
	inlineBytes  = 8 << 10  // bytes of a file in the answer
	inlineTotal  = 10 << 10 // bytes of all files in the answer
	shownError   = 4_000    // characters of an exception's text; stderr has all of it
	shownFrames  = 50       // lines of an exception's traceback
	linksVersion = "2025-06-18"
)

// view selects the parts of a result to show.
type view struct {
	content  bool // content of files, and pictures
	explicit bool // the caller has asked for content
	manifest bool
	receipt  bool // the receipt, and the whole isolation
}

// plainResult is a result without its encoding, which would be that of the whole answer.
type plainResult sandboxmcp.Result

// shownResult is a result in full. Values and exceptions are
// whole in it. Long streams and files above inlineBytes are resources.
type shownResult struct {
	plainResult
	StdoutURI string            `json:"stdout_uri,omitempty"` // set when stdout is shortened
	StderrURI string            `json:"stderr_uri,omitempty"`
	Manifest  map[string]string `json:"manifest,omitzero"` // name to SHA-256

	Receipt any `json:"receipt,omitempty"` // in place of that of Result; nil: not asked for
}

// show returns the answer for a result. It does not modify what res points to.
func (s *Server) show(ctx context.Context, c *call, res sandboxmcp.Result, v view) answer {
	if s.small {
		return s.showSmall(ctx, c, res, v)
	}
	r := shownResult{plainResult: plainResult(complete(res))}
	if v.receipt {
		r.Receipt = res.Receipt
	}

	var pictures []mcp.Content
	if v.content {
		var more int
		if pictures, more, _ = s.pictures(ctx, c.who, res); more > 0 {
			r.Note = sentences(r.Note, leftOut(more, res.RequestID))
		}
	}
	r.Results = some(res.Results)
	var links []mcp.Content
	withLinks := linksKnown(c.request.ProtocolVersion())
	inline := inlineTotal
	for i := range r.Artifacts {
		a := &r.Artifacts[i]
		if a.DownloadURL == nil {
			a.DownloadURL = s.link(c.who.Namespace, string(r.RequestID), a.Name, a.SizeBytes)
		}
		if !v.content || len(a.ContentB64) > min(inline, inlineBytes) {
			a.ContentB64 = nil
		}
		inline -= len(a.ContentB64)
		if withLinks && a.SizeBytes > int64(len(a.ContentB64)) {
			links = append(links, &mcp.ResourceLink{URI: a.URI, Name: a.Name, MIMEType: a.MIMEType, Size: &a.SizeBytes})
		}
	}
	if v.manifest {
		r.Manifest = make(map[string]string, len(r.Artifacts))
		for _, a := range r.Artifacts {
			r.Manifest[a.Name] = a.SHA256
		}
	}
	blocks := slices.Concat(links, pictures)
	r.Stdout, r.Stderr, r.StdoutURI, r.StderrURI = shownStreams(res, func() int { return fullChars })
	if res.Status == sandboxmcp.StatusRunning {
		return answer{body: runningResult{&r}, blocks: blocks}
	}
	return answer{body: &r, blocks: blocks}
}

// runningResult is a result that has no success and no exit code yet.
type runningResult struct{ *shownResult }

// MarshalJSON encodes both as null, and leaves the order of the fields.
func (r runningResult) MarshalJSON() ([]byte, error) {
	text, err := encode(r.shownResult)
	old := fmt.Sprintf(`"success":%t,"exit_code":%d,`, r.Success, r.ExitCode)
	return bytes.Replace(text, []byte(old), []byte(`"success":null,"exit_code":null,`), 1), err // they follow the request id, which contains no quotes
}

// linksKnown reports whether clients of a protocol version know resource_link blocks. The
// URIs are in the JSON, too.
func linksKnown(version string) bool { return version == "" || version >= linksVersion }

// complete returns r with empty lists and objects in place of nil, and with a copy of the
// artifacts, whose content the caller will remove.
func complete(r sandboxmcp.Result) sandboxmcp.Result {
	r.Artifacts = each(r.Artifacts)
	if r.Metadata == nil {
		r.Metadata = map[string]any{}
	}
	r.Network.Allowed = some(r.Network.Allowed)
	r.Network.Denied = some(r.Network.Denied)
	r.Isolation = wholeIsolation(r.Isolation)
	if r.Error != nil {
		e := *r.Error
		e.Traceback = some(e.Traceback)
		r.Error = &e
	}
	return r
}

func wholeIsolation(i *sandboxmcp.Isolation) *sandboxmcp.Isolation {
	if i == nil {
		return nil
	}
	w := *i
	w.Walls, w.Weak = some(i.Walls), some(i.Weak)
	return &w
}

// each returns a copy of list that is not nil, because nil would become null in JSON.
func each[T any](list []T) []T { return append(make([]T, 0, len(list)), list...) }

// some returns list itself, or an empty one for nil.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// shownException shortens an exception, keeping the last frames.
func shownException(e *sandboxmcp.ProgramError) *sandboxmcp.ProgramError {
	if e == nil {
		return nil
	}
	s := *e
	s.Name = clip(e.Name, shownError)
	s.Value = clip(e.Value, shownError)
	lines := e.Traceback[max(0, len(e.Traceback)-shownFrames):]
	s.Traceback = make([]string, 0, len(lines))
	left := shownError
	for _, line := range slices.Backward(lines) {
		if left <= 0 {
			break
		}
		line = clip(line, left)
		left -= len(line)
		s.Traceback = append(s.Traceback, line)
	}
	slices.Reverse(s.Traceback)
	return &s
}
