package engine_test

import (
	"encoding/json"
	"fmt"
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

// TestKeptValuesLeaveRoomForSessions: a namespace can make a session however many values it keeps, and
// the session gets all of these values.
func TestKeptValuesLeaveRoomForSessions(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	keep := func(keys, size int) error {
		data := map[string]json.RawMessage{}
		for n := range keys {
			data[fmt.Sprintf("of%d-%d", size, n)] = json.RawMessage(`"` + fmt.Sprintf("%0*d", size, 0) + `"`)
		}
		_, err := e.Bridge(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Bridge{Data: data})
		return err
	}
	if err := keep(100, 40_000); err != nil {
		t.Fatal(err)
	}
	wantCode(t, keep(100, 1), sandboxmcp.CodeFileTooLarge)
	wantCode(t, keep(100, 2), sandboxmcp.CodeFileTooLarge)
	id := create(t, e, sandboxmcp.SessionSpec{})
	if res := execute(t, e, in(id, "import sandbox\nprint(len(list(sandbox.bridge)))\n")); res.Stdout != "100\n" {
		t.Errorf("the values of a new session: got %q and %q, want 100", res.Stdout, res.Stderr)
	}
}
