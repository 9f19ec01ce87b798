package engine_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestAFileOfAnEndedSessionIsReadByItsSession: the session's id, which is in the uri of the file,
// returns the newest of the files of that name. While the session lives, the file itself counts.
func TestAFileOfAnEndedSessionIsReadByItsSession(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	ctx := t.Context()
	for _, text := range []string{"old", "new"} {
		execute(t, e, in("mine", "open('a.txt', 'w').write('"+text+"'); None"))
	}
	read := func(ns sandboxmcp.Namespace, name string) (string, error) {
		a, err := e.ArtifactContent(ctx, of(ns), "mine", name)
		return string(a.ContentB64), err
	}
	if got, err := read("", "a.txt"); code(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("got %q and %v while the session lives, want request_not_found: ReadFile returns the file", got, err)
	}
	if err := e.TerminateSession(ctx, sandboxmcp.Caller{}, "mine"); err != nil {
		t.Fatal(err)
	}
	if got, err := read("", "a.txt"); err != nil || got != "new" {
		t.Errorf("got %q and %v, want the newest file", got, err)
	}
	if _, err := read("", "b.txt"); code(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("got %v for a file that no run left, want request_not_found", err)
	}
	if _, err := read("other", "a.txt"); code(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("got %v in another namespace, want request_not_found", err)
	}
}
