package server

import (
	"bytes"
	"encoding/json"

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
	text, err := encode(string(r.body))
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(frame)+len(text)+len(r.body)+100)
	out = append(out, before...)
	out = append(out, `"content":[{"type":"text","text":`...)
	out = append(out, text...)
	out = append(out, '}')
	for _, b := range r.blocks {
		block, err := b.MarshalJSON()
		if err != nil {
			return nil, err
		}
		out = append(out, ',')
		out = append(out, block...)
	}
	out = append(out, `],"structuredContent":`...)
	out = append(out, r.body...)
	return append(out, after...), nil
}
