package server

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// encodedResult is a tool result with its own JSON encoding. The SDK's encoding scans the
// body about eight times, because it contains the body twice and every nested encoder
// validates its input. This one scans it once.
type encodedResult struct {
	*mcp.CallToolResult
	body   json.RawMessage // the text and the structured content
	blocks []mcp.Content   // content blocks that follow the text
}

// fast converts r to an encodedResult if it has the form of this package's results.
// Otherwise it returns r.
func fast(r *mcp.CallToolResult) mcp.Result {
	body, ok := r.StructuredContent.(json.RawMessage)
	if !ok || len(r.Content) == 0 {
		return r
	}
	if text, ok := r.Content[0].(*mcp.TextContent); !ok || text.Text != string(body) {
		return r
	}
	return &encodedResult{r, body, r.Content[1:]}
}

// MarshalJSON encodes the fields that the SDK adds (_meta, isError, resultType) with the
// SDK, and inserts the content.
func (r *encodedResult) MarshalJSON() ([]byte, error) {
	shell := *r.CallToolResult
	shell.Content, shell.StructuredContent = nil, nil
	frame, err := json.Marshal(&shell)
	if err != nil {
		return nil, err
	}
	const hole = `"content":null`
	before, after, found := bytes.Cut(frame, []byte(hole))
	if !found {
		return json.Marshal(r.CallToolResult)
	}
	out := make([]byte, 0, len(frame)+2*len(r.body)+500)
	out = append(out, before...)
	if out, err = appendContent(out, "", r.body, r.blocks); err != nil {
		return nil, err
	}
	return append(out, after...), nil
}

// appendContent appends the fields content and structuredContent of a tool result to out. The first
// block of the content is the text, or the body if text is empty. Then come the blocks.
func appendContent(out []byte, text string, body json.RawMessage, blocks []mcp.Content) ([]byte, error) {
	out = append(out, `"content":[{"type":"text","text":`...)
	if text != "" {
		out, _ = jsontext.AppendQuote(out, text) // replaces invalid UTF-8 and reports it
	} else {
		out, _ = jsontext.AppendQuote(out, body)
	}
	out = append(out, '}')
	for _, b := range blocks {
		block, err := b.MarshalJSON()
		if err != nil {
			return nil, err
		}
		out = append(out, ',')
		out = append(out, block...)
	}
	out = append(out, `],"structuredContent":`...)
	return append(out, body...), nil
}
