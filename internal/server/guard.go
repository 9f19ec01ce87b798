package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// guard turns panics into error answers, refuses methods that the SDK would answer although
// this server does not support them, and encodes tool results with encodedResult.
func (s *Server) guard(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			id := incident()
			s.log.Error("call panicked", "incident", id, "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if method == "tools/call" {
				res, err = errorResult(internalError(id)), nil
				return
			}
			res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error " + id}
		}()
		if strings.HasPrefix(method, "prompts/") {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "there are no prompts"}
		}
		res, err = next(ctx, method, req)
		if r, ok := res.(*mcp.CallToolResult); ok && r != nil && err == nil {
			res = fast(r)
		}
		return res, err
	}
}

// incident returns a random id, by which an operator finds the error in the log.
func incident() string { return rand.Text()[:12] }

func internalError(id string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeInternal, "an internal error occurred; the operator's log has it under %s", id).With("id", id)
}

// failure returns the error for the caller. The cause is only logged.
func (s *Server) failure(tool string, err error) *sandboxmcp.Error {
	return told(s.log, tool, err)
}

// told returns the error for the caller and logs the cause. what names the tool or route.
func told(log *slog.Logger, what string, err error) *sandboxmcp.Error {
	e := sandboxmcp.AsError(err)
	if e.Code == sandboxmcp.CodeInternal {
		id := incident()
		log.Error("call failed", "incident", id, "tool", what, "err", err)
		return internalError(id)
	}
	if e.Err != nil {
		log.Warn("call refused", "tool", what, "code", string(e.Code), "err", e.Err)
	}
	return e
}
