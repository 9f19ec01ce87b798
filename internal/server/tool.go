package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// tool is one row of the table of tools.
type tool struct {
	name        string // at most 40 characters of a-z 0-9 _
	title       string
	description string // what the tool does, then its limits and the next step
	hints       hints
	in          *jsonschema.Schema
	out         *jsonschema.Schema
	letsOut     bool // its programs may reach open domains
	large       bool // its answer may contain a whole file
	run         func(s *Server, ctx context.Context, c *call) (answer, error)
}

// hints are the annotations of a tool. All of them are always sent.
type hints struct {
	readOnly    bool // changes nothing
	destructive bool // may delete or overwrite
	idempotent  bool // a second call with the same arguments has no further effect
	openWorld   bool // may affect things outside of the sandbox
}

// call is a tool call with valid arguments.
type call struct {
	args    arguments
	who     sandboxmcp.Caller
	request *mcp.CallToolRequest
}

// answer is the result of a tool: a JSON object, and further content blocks.
type answer struct {
	body   any
	blocks []mcp.Content
	ask    *mcp.CallToolResult // a question to the person that must be answered first; nil: no question
}

// toolTable lists every tool. To add one, add a row in a tools_*.go file and its handler.
// Then run `go test ./internal/server -update` for the golden list and `make generate` for
// docs/tools.md.
func toolTable() []tool {
	return append([]tool{
		executeCode(), getArtifacts(), listRuntimes(), sandboxStats(),
		createSession(), terminateSession(), bridgeData(), inspectState(),
		setResourceLimits(), requestEgress(), auditExecution(),
	}, fiveTable()...)
}

func (s *Server) addTool(t tool) {
	check, err := newChecker(t.name, t.in)
	if err != nil {
		panic(fmt.Sprintf("input schema of %s: %v", t.name, err)) //nolint:forbidigo // an error in the table, which every test would find
	}
	h := t.hints
	s.mcp.AddTool(&mcp.Tool{
		Name:        t.name,
		Description: t.description,
		Annotations: &mcp.ToolAnnotations{
			Title: t.title, ReadOnlyHint: h.readOnly, DestructiveHint: &h.destructive,
			IdempotentHint: h.idempotent, OpenWorldHint: &h.openWorld,
		},
		InputSchema:  t.in,
		OutputSchema: t.out,
	}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := s.admitTool(ctx, t, check, req)
		if err != nil {
			return errorResult(s.failure(t.name, err)), nil
		}
		return res, nil
	})
}

// admitTool calls a tool unless the calls in progress hold too much memory.
func (s *Server) admitTool(sent context.Context, t tool, check *checker, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	ctx, free := withRoot(sent)
	defer free()
	leave, err := s.load.enter(ctx, len(req.Params.Arguments), t.large)
	if err != nil {
		return nil, err
	}
	defer answered(sent, leave)
	return s.callTool(ctx, t, check, req)
}

func (s *Server) callTool(ctx context.Context, t tool, check *checker, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	args, err := check.parse(req.Params.Arguments)
	if err != nil {
		return nil, err
	}
	name, _ := args["namespace"].(string)
	who, err := s.identity.Caller(name)
	if err != nil {
		return nil, err
	}
	a, err := t.run(s, ctx, &call{args: args, who: who, request: req})
	if err != nil {
		return nil, err
	}
	if a.ask != nil {
		return a.ask, nil
	}
	body, err := encode(a.body)
	if err != nil {
		return nil, fmt.Errorf("encode result of %s: %w", t.name, err)
	}
	return &mcp.CallToolResult{
		Content:           append([]mcp.Content{&mcp.TextContent{Text: string(body)}}, a.blocks...),
		StructuredContent: body,
	}, nil
}

// errorResult returns a failure as a tool result. It has the same body as text and as
// structured content, because a client shows its model only one of them.
func errorResult(e *sandboxmcp.Error) *mcp.CallToolResult {
	body, err := encode(e.Body())
	if err != nil { // a field of the error cannot be encoded, so leave the fields out
		body, _ = encode((&sandboxmcp.Error{Code: e.Code, Message: e.Message, Hint: e.Hint}).Body())
	}
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: string(body)}},
		StructuredContent: body,
		IsError:           true,
	}
}

// encode returns compact JSON that does not escape < > &.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
