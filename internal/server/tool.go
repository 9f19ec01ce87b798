package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/door"
)

// tool is one row of the table of tools.
type tool struct {
	name        string // at most 40 characters of a-z 0-9 _
	title       string
	description string // what the tool does, then its limits and the next step
	alone       string // replaces description if that names a tool that is not offered; empty: such sentences are left out
	hints       hints
	in          *jsonschema.Schema
	out         *jsonschema.Schema
	letsOut     bool // its programs may reach open domains
	large       bool // its answer may contain a whole file
	asks        bool // it may ask the person at the client, and then needs several answers
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
	peer    string // names the client; see [door.Principal]
	decides bool   // an answer of the client to a form counts as a person's
	request *mcp.CallToolRequest
}

// answer is the result of a tool: a JSON object, and further content blocks.
type answer struct {
	body   any
	text   string // shown in place of the body's JSON; empty: the JSON
	blocks []mcp.Content
	ask    *mcp.CallToolResult // a question to the person that must be answered first; nil: no question
}

// toolTable lists every tool. To add one, add a row in a tools_*.go file and its handler.
// Then run `go test ./internal/server -update` for the golden list and `make generate` for
// docs/tools.md.
func toolTable(f facts) []tool {
	return slices.Concat([]tool{
		executeCode(f), getArtifacts(), listRuntimes(), sandboxStats(),
		installPackage(), createSession(f), terminateSession(), bridgeData(), inspectState(),
		setResourceLimits(), requestEgress(), auditExecution(), validateCode(), fetchWebpage(), browserFetch(), webSearch(),
	}, hostTable(), fiveTable(f))
}

// offered is a tool as the SDK has it.
type offered struct {
	tool   *mcp.Tool
	text   []byte // the JSON of tool
	answer directTool
	handle mcp.ToolHandler
	asks   bool // see tool
}

// offered returns a tool in the form of the SDK.
func (s *Server) offered(t tool) offered {
	check, err := newChecker(t.name, t.in)
	if err != nil {
		panic(fmt.Sprintf("input schema of %s: %v", t.name, err)) //nolint:forbidigo // an error in the table, which every test would find
	}
	answer := func(ctx context.Context, req *mcp.CallToolRequest, to answerTo) outcome {
		return s.admitTool(ctx, t, check, req, to)
	}
	handle := func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return answer(ctx, req, answerTo{new(bytes.Buffer), func(leave func()) { answered(ctx, leave) }}).result(), nil
	}
	h := t.hints
	o := offered{answer: answer, handle: handle, asks: t.asks, tool: &mcp.Tool{
		Name:        t.name,
		Description: t.description,
		Annotations: &mcp.ToolAnnotations{
			Title: t.title, ReadOnlyHint: h.readOnly, DestructiveHint: &h.destructive,
			IdempotentHint: h.idempotent, OpenWorldHint: &h.openWorld,
		},
		InputSchema:  encodedSchema(t.in),
		OutputSchema: encodedSchema(t.out),
	}}
	if o.text, err = json.Marshal(o.tool); err != nil {
		panic(fmt.Sprintf("encode tool %s: %v", t.name, err)) //nolint:forbidigo // an error in the table, which every test would find
	}
	return o
}

// encodedSchema returns the JSON of a schema. The SDK encodes the schema of a tool for each call
// over HTTP, which this form makes cheap.
func encodedSchema(s *jsonschema.Schema) json.RawMessage {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("encode schema: %v", err)) //nolint:forbidigo // an error in the table, which every test would find
	}
	return text
}

// outcome is the result of a tool before it is encoded for the client.
type outcome struct {
	body   json.RawMessage     // a JSON object
	text   string              // shown in place of the body; empty: the body
	blocks []mcp.Content       // content blocks that follow the text
	failed bool                // the body is that of an error
	ask    *mcp.CallToolResult // a question to the person, and no result; nil: no question
}

// result returns the outcome as the SDK takes it.
func (o outcome) result() *mcp.CallToolResult {
	if o.ask != nil {
		return o.ask
	}
	return &mcp.CallToolResult{
		Content:           append([]mcp.Content{&mcp.TextContent{Text: cmp.Or(o.text, string(o.body))}}, o.blocks...),
		StructuredContent: o.body,
		IsError:           o.failed,
	}
}

// answerTo says what is done with the answer to a call.
type answerTo struct {
	room  *bytes.Buffer      // gets the JSON of the body
	later func(leave func()) // gets a function to call when the answer was sent
}

// admitTool calls a tool unless the calls in progress hold too much memory.
func (s *Server) admitTool(sent context.Context, t tool, check *checker, req *mcp.CallToolRequest, to answerTo) outcome {
	ctx, free := withRoot(sent)
	defer free()
	id, err := s.identityOf(ctx, req.Extra)
	if err != nil {
		return failed(s.failure(t.name, err))
	}
	in, err := s.enterCall(ctx, inCall{arguments: len(req.Params.Arguments), large: t.large, link: linkFor(sent, req.Extra), cancel: free}, id)
	if err != nil {
		return failed(s.failure(t.name, err))
	}
	defer to.later(in.leave)
	defer in.sends()
	var o outcome
	c, err := check.call(id, req)
	if err == nil {
		o, err = s.callTool(ctx, t, c, to.room)
	}
	if err != nil {
		return failed(s.failure(t.name, in.failure(err)))
	}
	return o
}

// call returns a call of an identity, with its arguments.
func (c *checker) call(id sandboxmcp.Identity, req *mcp.CallToolRequest) (*call, error) {
	args, err := c.parse(req.Params.Arguments)
	if err != nil {
		return nil, err
	}
	name, _ := args["namespace"].(string)
	who, err := id.Caller(name)
	if err != nil {
		return nil, err
	}
	return &call{args: args, who: who, peer: door.Principal(id), decides: id.Decides(), request: req}, nil
}

func (s *Server) callTool(ctx context.Context, t tool, c *call, room *bytes.Buffer) (outcome, error) {
	a, err := t.run(s, ctx, c)
	if err != nil || a.ask != nil {
		return outcome{ask: a.ask}, err
	}
	if err = encodeTo(room, a.body); err != nil {
		return outcome{}, fmt.Errorf("encode result of %s: %w", t.name, err)
	}
	return outcome{body: room.Bytes(), text: a.text, blocks: a.blocks}, nil
}

// failed returns a failure as the outcome of a tool. It has the same body as text and as
// structured content, because a client shows its model only one of them.
func failed(e *sandboxmcp.Error) outcome {
	body, err := encode(e.Body())
	if err != nil { // a field of the error cannot be encoded, so leave the fields out
		body, _ = encode((&sandboxmcp.Error{Code: e.Code, Message: e.Message, Hint: e.Hint}).Body())
	}
	return outcome{body: body, failed: true}
}

// encode returns compact JSON that does not escape < > &.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	err := encodeTo(&b, v)
	return b.Bytes(), err
}

// encodeTo appends the JSON of encode to b.
func encodeTo(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the line break
	return nil
}
