package engine_test

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestBridgeHandsOnCleanValues: values that a session offers to the bridge may hold any bytes.
// Only valid ones reach the other session.
func TestBridgeHandsOnCleanValues(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{})
	put := func(value string) {
		t.Helper()
		code := "import os\nos.makedirs('.bridge', exist_ok=True)\nwith open('.bridge/k.json', 'wb') as f: _ = f.write(" + value + ")\n"
		if res := execute(t, e, in(id, code)); !res.Success {
			t.Fatalf("preparing the session: got stderr %s, want success", res.Stderr)
		}
	}
	put(`b'{"a": "\xff\xc3", "b": 10}'`)
	got, err := e.Bridge(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Bridge{From: id, Keys: []string{"k"}})
	if text, _ := json.Marshal(got); err != nil || !utf8.Valid(text) || string(got.Data["k"]) != `{"a":"`+"\uFFFD\uFFFD"+`","b":10}` {
		t.Errorf("got %q, %v", got.Data["k"], err)
	}
	put(`b'[' * 5000 + b']' * 5000`)
	_, err = e.Bridge(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Bridge{From: id, Keys: []string{"k"}})
	wantCode(t, err, sandboxmcp.CodeInvalidContent)
}
