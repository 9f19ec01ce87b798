package server

import (
	"bytes"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// encodedResult is a tool result that makes its own JSON. The SDK's form scans
// the body eight times or so, because it stands in it twice and every nested
// encoder checks what the one below it made; this one does it once.
type encodedResult struct {
	*mcp.CallToolResult
	body   json.RawMessage // the text and the structured content
	blocks []mcp.Content   // behind the text
}

// fast returns r so that it is encoded quickly, where it has the form that
// every result of ours has.
func fast(r *mcp.CallToolResult) mcp.Result {
	body, ok := r.StructuredContent.(json.RawMessage)
	if !ok || len(r.Content) == 0 {
		return r
	}
	return &encodedResult{r, body, r.Content[1:]}
}

// MarshalJSON takes what the SDK adds (_meta, isError, resultType) from the SDK
// and puts the content in.
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
