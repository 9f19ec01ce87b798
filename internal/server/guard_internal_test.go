package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestCausesInTheLogAreBounded: a cause that repeats a long argument does not fill the log.
func TestCausesInTheLogAreBounded(t *testing.T) {
	cause := errors.New("open " + strings.Repeat("a/", 100_000) + ": file name too long")
	for name, err := range map[string]error{"internal": cause, "coded": sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "it is not there").WithCause(cause)} {
		var log strings.Builder
		_ = told(slog.New(slog.NewTextHandler(&log, nil)), "read", err)
		if text := log.String(); len(text) > maxLogged+1000 || !strings.Contains(text, "open a/") || !strings.Contains(text, "file name too long") {
			t.Errorf("%s: got %d bytes, want the beginning and the end of the cause", name, len(text))
		}
	}
}

// TestLongCursorsAreNotDecoded: the SDK decodes the cursor of a list without a bound, so a long one does not reach it.
func TestLongCursorsAreNotDecoded(t *testing.T) {
	reached := 0
	handle := (&Server{prompts: true}).guard(func(context.Context, string, mcp.Request) (mcp.Result, error) {
		reached++
		return nil, errors.New("reached")
	})
	long := strings.Repeat("A", maxCursor+1)
	for method, req := range map[string]mcp.Request{
		"tools/list":               &mcp.ListToolsRequest{Params: &mcp.ListToolsParams{Cursor: long}},
		"prompts/list":             &mcp.ListPromptsRequest{Params: &mcp.ListPromptsParams{Cursor: long}},
		"resources/list":           &mcp.ListResourcesRequest{Params: &mcp.ListResourcesParams{Cursor: long}},
		"resources/templates/list": &mcp.ListResourceTemplatesRequest{Params: &mcp.ListResourceTemplatesParams{Cursor: long}},
	} {
		_, err := handle(t.Context(), method, req)
		if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok || wire.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("%s: got %v, want the cursor refused", method, err)
		}
	}
	for _, p := range []*mcp.ListToolsParams{nil, {}, {Cursor: long[1:]}} {
		_, _ = handle(t.Context(), "tools/list", &mcp.ListToolsRequest{Params: p})
	}
	if reached != 3 {
		t.Errorf("got %d lists that the SDK answers, want those without a long cursor", reached)
	}
}
