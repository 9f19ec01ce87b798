package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// TestPrintJSONHasNoControlCharacters: a terminal takes U+009B for the beginning of a
// control sequence, and U+202E turns the direction of what follows. A reader of the JSON
// gets both.
func TestPrintJSONHasNoControlCharacters(t *testing.T) {
	want := map[string]string{"stdout": "a\u009b31mb\u202ec\u00a0\x7f\x1b[2J\n\U000e0001ä→😀", "\u0085": ""}
	var out bytes.Buffer
	a := &call{App: &app.App{Stdout: &out}}
	a.printJSON(want)
	if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("got %q, which is not printable at byte %d, want printable text", out.String(), i)
	}
	if !strings.Contains(out.String(), "ä→😀") {
		t.Errorf("got %q, want printable characters as they are", out.String())
	}
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["stdout"] != want["stdout"] || len(got) != 2 {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// Hints name commands, not the tools of models.
func TestHintsNameCommands(t *testing.T) {
	e := sandboxmcp.Errorf(sandboxmcp.CodeHostAccessDenied, "no rule allows it").WithHint("ask a person: request_host_access with this command as pattern")
	if got, want := inCommands(e).Hint, "ask a person: `sandboxmcp host access request` with this command as pattern"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
