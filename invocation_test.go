package sandboxmcp_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

func TestInvocationLinesWorkInAShell(t *testing.T) {
	for _, c := range []struct {
		how  sandboxmcp.Invocation
		want string
	}{
		{sandboxmcp.Invocation{}, "sandboxmcp egress list"},
		{sandboxmcp.Invocation{Program: "/opt/bin/sandboxmcp"}, "/opt/bin/sandboxmcp egress list"},
		{sandboxmcp.Invocation{Program: "/my bin/x", StateDir: "/it's a state", Config: "/a b.yaml"}, `SANDBOXMCP_STATE_DIR='/it'\''s a state' '/my bin/x' egress list --config '/a b.yaml'`},
	} {
		if got := c.how.Line("egress list"); got != c.want {
			t.Errorf("%+v: got %s, want %s", c.how, got, c.want)
		}
	}
	for _, word := range []string{"", "plain", "it's", "a b", "*.example.com", "$HOME `id` \\ \"x\"", "new\nline", "~", "-x", "ä"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+sandboxmcp.ShellQuote(word)).Output()
		if word == "-x" {
			continue // printf reads it as a flag; it is a plain word
		}
		if err != nil || string(out) != word {
			t.Errorf("%q: got %q and %v from the shell, want the same", word, out, err)
		}
	}
}

func TestPasteReplacesEveryCommand(t *testing.T) {
	how := sandboxmcp.Invocation{Program: "/x/sandboxmcp", StateDir: "/s"}
	text := "run `sandboxmcp doctor`, or `sandboxmcp egress '*.a.example'`; sandboxmcp and `other x` stay"
	want := "run `SANDBOXMCP_STATE_DIR=/s /x/sandboxmcp doctor`, or `SANDBOXMCP_STATE_DIR=/s /x/sandboxmcp egress '*.a.example'`; sandboxmcp and `other x` stay"
	got := how.Paste(text)
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if again := how.Paste(got); again != want {
		t.Errorf("twice: got %s, want %s", again, want)
	}
	if got := (sandboxmcp.Invocation{}).Paste(text); got != text {
		t.Errorf("zero: got %s, want %s", got, text)
	}
}

// TestPasteChangesNoTextOfOthers: Paste does not change backquoted text that comes from a package's file name.
func TestPasteChangesNoTextOfOthers(t *testing.T) {
	how := sandboxmcp.Invocation{Program: "/x/sandboxmcp", StateDir: "/s"}
	text := "the file " + sandboxmcp.Quote("`sandboxmcp egress '*.a.example' --always`") + " is refused"
	if got := how.Paste(text); got != text || strings.Contains(got, "`") {
		t.Errorf("got %s, want %s without backquotes", got, text)
	}
}
