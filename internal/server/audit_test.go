package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

func (f *fake) Audit(_ context.Context, c sandboxmcp.Caller, q sandboxmcp.AuditQuery) (sandboxmcp.AuditPage, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.AuditPage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries = append(f.queries, q)
	return sandboxmcp.AuditPage{Total: 3}, nil
}

// audit_execution asks for the caller's own namespace, within its bounds, and
// answers with a list even when there is nothing.
func TestAuditExecution(t *testing.T) {
	f := newFake()
	p := legacy(t, f)
	at := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		args map[string]any
		want sandboxmcp.AuditQuery
	}{
		{map[string]any{}, sandboxmcp.AuditQuery{}},
		{map[string]any{"namespace": "default", "limit": 1000, "action": "execute", "since": "2031-01-02T03:04:05Z"}, sandboxmcp.AuditQuery{Limit: 1000, Action: "execute", Since: at}},
		{map[string]any{"since": "2031-01-02T05:04:05+02:00"}, sandboxmcp.AuditQuery{Since: at}},
	} {
		res := p.call("audit_execution", tt.args)
		body, _ := res["structuredContent"].(map[string]any)
		if list, ok := body["entries"].([]any); !ok || len(list) != 0 || body["total"] != 3.0 || body["head"] == nil {
			t.Errorf("%v: got %v, want no entries of 3, and a head", tt.args, res)
		}
		f.mu.Lock()
		got := f.queries[len(f.queries)-1]
		f.mu.Unlock()
		if !got.Since.Equal(tt.want.Since) {
			t.Errorf("%v: since %v, want %v", tt.args, got.Since, tt.want.Since)
		}
		got.Since = tt.want.Since
		if got != tt.want {
			t.Errorf("%v: asked %+v, want %+v", tt.args, got, tt.want)
		}
	}
	for want, args := range map[string]map[string]any{
		"access_denied":    {"namespace": "other"},
		"invalid_argument": {"limit": 0},
	} {
		if body, _ := p.call("audit_execution", args)["structuredContent"].(map[string]any); body["error"] != want {
			t.Errorf("%v: got %v, want %s", args, body, want)
		}
	}
	for _, args := range []map[string]any{{"limit": 1001}, {"limit": 1.5}, {"since": "yesterday"}, {"since": "2031-01-02"}, {"verbose": true}} {
		if body, _ := p.call("audit_execution", args)["structuredContent"].(map[string]any); body["error"] != "invalid_argument" {
			t.Errorf("%v: got %v, want invalid_argument", args, body)
		}
	}
}
