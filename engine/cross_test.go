package engine_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// searchOf is the program that looks for secrets, and for the server's files in state.
func searchOf(t *testing.T, state string) string {
	t.Helper()
	return strings.Replace(testkit.Hostile(t, "looks-for-secrets.py"), "STATE", "["+quoted(state)+"]", 1)
}

// TestSessionsReachNothingOfEachOther: while one session holds secrets, sessions and single
// runs of its own and of another namespace find none of them.
func TestSessionsReachNothingOfEachOther(t *testing.T) {
	state := t.TempDir() + "/state"
	e := openReal(t, at(state))
	needs(t, e, sandboxmcp.Python)
	run := func(ns sandboxmcp.Namespace, id sandboxmcp.SessionID, code string) string {
		r := in(id, code)
		r.Language = sandboxmcp.Python
		res := execute(t, e, r, of(ns))
		return res.Stdout + res.Stderr
	}
	owner := create(t, e, sandboxmcp.SessionSpec{})
	if got := run("", owner, testkit.Hostile(t, "leaves-secrets.py")); got != "True True\n" {
		t.Fatalf("leaving secrets: got %q, want True True", got)
	}
	if got := run("", owner, searchOf(t, state)); !strings.Contains(got, "'file'") || !strings.Contains(got, "'abstract'") || !strings.Contains(got, "'loopback'") || !strings.Contains(got, "'environment'") {
		t.Fatalf("the owner's own search: got %q, want it to find files, sockets and environment", got)
	}
	for _, ns := range []sandboxmcp.Namespace{"", "other"} {
		id := create(t, e, sandboxmcp.SessionSpec{}, of(ns))
		if got := run(ns, id, searchOf(t, state)); got != "[]\n" {
			t.Errorf("a session of namespace %q: found %s, want []", ns, got)
		}
		if got := run(ns, "", searchOf(t, state)); got != "[]\n" {
			t.Errorf("a run of namespace %q: found %s, want []", ns, got)
		}
	}
	if got := run("", owner, "print(child.poll(), open('/tmp/' + secret).read() == secret)"); got != "None True\n" {
		t.Errorf("the owner's child and file afterwards: got %q, want None True", got)
	}
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{Namespace: "other"}, sandboxmcp.Request{SessionID: owner, Code: "1"}); sandboxmcp.CodeOf(err) == "" {
		t.Error("a run in a session of another namespace: got no error, want a refusal")
	}
}

// TestNextTenantFindsNothing: parts of a closed session are used for the next one, which
// finds no secret of the session before.
func TestNextTenantFindsNothing(t *testing.T) {
	state := t.TempDir() + "/state"
	e := openReal(t, at(state))
	needs(t, e, sandboxmcp.Python)
	for round := range 6 {
		id := create(t, e, sandboxmcp.SessionSpec{})
		if res := execute(t, e, in(id, searchOf(t, state))); res.Stdout != "[]\n" {
			t.Errorf("round %d: a session found %s%s, want []", round, res.Stdout, res.Stderr)
		}
		if res := execute(t, e, in(id, testkit.Hostile(t, "leaves-secrets.py"))); res.Stdout != "True True\n" {
			t.Fatalf("leaving secrets: got %q %q, want True True", res.Stdout, res.Stderr)
		}
		if err := e.CloseSession(t.Context(), sandboxmcp.Caller{}, id); err != nil {
			t.Fatal(err)
		}
		if res := execute(t, e, sandboxmcp.Request{Code: searchOf(t, state), Language: sandboxmcp.Python}); res.Stdout != "[]\n" {
			t.Errorf("round %d: a run found %s%s, want []", round, res.Stdout, res.Stderr)
		}
	}
}
