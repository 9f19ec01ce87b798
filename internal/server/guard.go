package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/stack"
)

// guard turns panics into error answers, refuses methods that the SDK would answer although
// this server does not support them, and encodes tool results with encodedResult.
func (s *Server) guard(next mcp.MethodHandler) mcp.MethodHandler {
	s.receive = next
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		stack.Grow() // once, while there is little to copy
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			id := s.panicked(method, p)
			if method == toolsCall {
				res, err = failed(internalError(id)).result(), nil
				return
			}
			res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error " + id}
		}()
		if strings.HasPrefix(method, "prompts/") && !s.prompts {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "there are no prompts"}
		}
		if err = checkCursor(req.GetParams()); err != nil {
			return nil, err
		}
		res, err = next(ctx, method, req)
		if err == nil {
			s.rules().facts.instruct(ctx, res)
		}
		if r, ok := res.(*mcp.CallToolResult); ok && r != nil && err == nil {
			res = fast(r)
		}
		return res, encodable(err)
	}
}

// maxCursor is how many bytes the cursor of a list may have. The longest that the SDK makes holds the name of one tool,
// prompt or resource.
const maxCursor = 1 << 10

// checkCursor refuses the cursor of a list that the server cannot have given. The SDK decodes cursors as gob, with a level of
// the stack for each byte of nested values: one of 250 KB took 64 MB and 40 ms. A list that came without parameters has nil.
func checkCursor(p mcp.Params) error {
	cursor := ""
	switch p := p.(type) {
	case *mcp.ListToolsParams:
		cursor = cmp.Or(p, &mcp.ListToolsParams{}).Cursor
	case *mcp.ListPromptsParams:
		cursor = cmp.Or(p, &mcp.ListPromptsParams{}).Cursor
	case *mcp.ListResourcesParams:
		cursor = cmp.Or(p, &mcp.ListResourcesParams{}).Cursor
	case *mcp.ListResourceTemplatesParams:
		cursor = cmp.Or(p, &mcp.ListResourceTemplatesParams{}).Cursor
	}
	if len(cursor) <= maxCursor {
		return nil
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one of this server's"}
}

// encodable returns an error without its data if that is not JSON. The SDK quotes the URI of a resource as Go does, also
// with \x00. Over HTTP it could not encode such an error: the request would get no answer, and stay in the memory of its
// session.
func encodable(err error) error {
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || len(wire.Data) == 0 || json.Valid(wire.Data) {
		return err
	}
	return &jsonrpc.Error{Code: wire.Code, Message: wire.Message}
}

// panicked logs a panic and returns the id under which the log has it.
func (s *Server) panicked(method string, p any) (id string) {
	id = incident()
	s.log.Error("call panicked", "incident", id, "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return id
}

// incident returns a random id, by which an operator finds the error in the log.
func incident() string { return rand.Text()[:12] }

func internalError(id string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInternal, "an internal error occurred; the operator's log has it under %s", id).With("id", id)
}

// failure returns the error for the caller. The cause is only logged.
func (s *Server) failure(tool string, err error) *sandboxmcp.Error {
	e := *told(s.log, tool, err)
	e.Message = s.invocation.Paste(e.Message)
	for _, hint := range []string{e.Hint, e.Code.Row().Hint, "see the message"} {
		if hint != "" && s.rules().facts.all(hint) {
			e.Hint = s.invocation.Paste(hint)
			break
		}
	}
	return &e
}

// told returns the error for the caller and logs the cause. what is the tool or the route.
// A call that its caller cancelled is no fault, and is not logged.
func told(log *slog.Logger, what string, err error) *sandboxmcp.Error {
	e := sandboxmcp.AsError(err)
	if e.Code == sandboxmcp.CodeInternal && errors.Is(err, context.Canceled) {
		return sandboxmcp.Errorf(sandboxmcp.CodeCancelled, "the call was cancelled")
	}
	if e.Code == sandboxmcp.CodeInternal {
		id := incident()
		log.Error("call failed", "incident", id, "tool", what, "err", logged(err))
		return internalError(id)
	}
	if e.Err != nil {
		log.Warn("call refused", "tool", what, "code", string(e.Code), "err", logged(e.Err))
	}
	return e
}

// maxLogged bounds the text of a cause in the log. It may repeat an argument, such as a path, and a caller could fill
// the disk with long ones.
const maxLogged = 4 << 10

func logged(err error) string {
	text := err.Error()
	if len(text) <= maxLogged {
		return text
	}
	return text[:maxLogged/2] + " … " + text[len(text)-maxLogged/2:]
}
