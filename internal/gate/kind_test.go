package gate_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
)

// line is a subject of a kind for tests. A line that ends with a star covers the lines that
// begin like it.
type line string

func (l line) String() string { return string(l) }

func (l line) Covers(other line) bool {
	prefix, wild := strings.CutSuffix(string(l), "*")
	return l == other || wild && strings.HasPrefix(string(other), prefix)
}

// lines is the kind of line.
func lines() gate.Kind[line] {
	return gate.Kind[line]{
		Name: "line", Member: "pattern",
		Field: func(sub *sandboxmcp.Subject) *string { return &sub.Pattern },
		Parse: func(text string) (line, error) { return line(strings.TrimSpace(text)), nil },
		Asked: "line_asked", Opened: "line_opened", Denied: "line_denied", Refused: sandboxmcp.CodeAccessDenied,
		Noun: "line", Closed: "every line is closed", Command: "line", Retry: "try again", Setting: "lines",
		Grant: func(text string) string { return "line open " + sandboxmcp.ShellQuote(text) },
		Off:   func() error { return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "lines are off") },
	}
}

// TestKindsShareOneMechanism: a kind has questions, grants, denials and notices of its own, and
// does not see those of another.
func TestKindsShareOneMechanism(t *testing.T) {
	b := open(t)
	clock := b.now
	g := gate.New(gate.Config[line]{Kind: lines(), Key: secret, Store: b.store, Audit: recordIn(b.store, nil), Approvals: true, Notices: &b.notices})
	b.set(clock)
	who := sandboxmcp.Caller{Namespace: "default", Actor: "cli"}
	domain := b.ask("api.example.com")
	a, fresh, err := g.Request(t.Context(), who, "echo hello", gate.Ask{Reason: "to greet"})
	if err != nil || !fresh || a.Pattern != "echo hello" || a.Domain != "" {
		t.Fatalf("got %+v, %v, %v, want a new question about echo hello", a, fresh, err)
	}
	if !strings.Contains(b.notices.String(), "asks for echo hello; the model says \"to greet\"; answer with `sandboxmcp line approve "+a.ID) {
		t.Errorf("notices: got %q, want the kind's command", b.notices.String())
	}
	forged := "echo '; answer with sandboxmcp line approve " + a.ID + "'"
	f, _, err := g.Request(t.Context(), who, line(forged), gate.Ask{Reason: "`sandboxmcp line approve " + a.ID + "`"})
	if want := "asks for " + strconv.Quote(forged) + `; the model says "\x60sandboxmcp line approve ` + a.ID + "\\x60\"; answer with `sandboxmcp line approve " + f.ID; err != nil || !strings.Contains(b.notices.String(), want) {
		t.Errorf("notices: got %q, %v, want what looks like the rest of a notice in quotes", b.notices.String(), err)
	}
	if _, _, err = g.Decide(t.Context(), who, sandboxmcp.AccessDecision{ID: f.ID, Deny: true}); err != nil {
		t.Fatal(err)
	}
	_, _, err = b.Decide(t.Context(), who, sandboxmcp.AccessDecision{ID: a.ID})
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	_, err = b.Find(t.Context(), "default", a.ID)
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	_, _, err = g.Decide(t.Context(), who, sandboxmcp.AccessDecision{ID: domain.ID, Deny: true})
	wantCode(t, err, sandboxmcp.CodeRequestNotFound)
	if _, n, err := g.Decide(t.Context(), who, sandboxmcp.AccessDecision{ID: a.ID}); err != nil || n == nil || n.Pattern != "echo hello" {
		t.Errorf("got %+v, %v, want a grant of echo hello", n, err)
	}
	for text, want := range map[line]bool{"echo hello": true, "echo hello you": false} {
		if _, ok, err := g.Allows(t.Context(), one, func(l line) bool { return l.Covers(text) }); ok != want || err != nil {
			t.Errorf("%s: got open %v, %v, want %v", text, ok, err, want)
		}
	}
	lists := [2]sandboxmcp.AccessList{}
	if lists[0], err = b.List(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if lists[1], err = g.List(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if len(lists[0].Pending) != 1 || len(lists[0].Granted) != 0 || len(lists[1].Pending) != 0 || len(lists[1].Granted) != 1 {
		t.Errorf("got %+v, want the question of one kind and the grant of the other", lists)
	}
	want := []string{"egress_request: api.example.com", "line_asked: echo hello"}
	if d := cmp.Diff(want, b.record("default")[:2]); d != "" {
		t.Errorf("record (-want +got):\n%s", d)
	}
	if done, err := g.Revoke(t.Context(), who, " echo hello"); err != nil || done.Revoked != 1 || done.Pattern != "echo hello" {
		t.Errorf("got %+v, %v, want one grant revoked", done, err)
	}
}

// TestADeniedLineIsDeniedAgain: the denial is final, and says how a person can grant it after all.
func TestADeniedLineIsDeniedAgain(t *testing.T) {
	b := open(t)
	g := gate.New(gate.Config[line]{Kind: lines(), Key: secret, Store: b.store, Audit: recordIn(b.store, nil), Approvals: true})
	who := sandboxmcp.Caller{Namespace: "default", Actor: "cli"}
	a, _, err := g.Request(t.Context(), who, "echo", gate.Ask{})
	if err != nil {
		t.Fatal(err)
	}
	answer, _, err := g.Decide(t.Context(), who, sandboxmcp.AccessDecision{ID: a.ID, Deny: true})
	if err != nil || answer.Status != sandboxmcp.ApprovalDenied || !strings.Contains(answer.HowToApprove, "line open echo") {
		t.Errorf("got %+v, %v, want it denied, with the command that opens it", answer, err)
	}
	_, _, err = g.Decide(t.Context(), who, sandboxmcp.AccessDecision{ID: a.ID})
	wantCode(t, err, sandboxmcp.CodeAccessDenied)
	if got, fresh, err := g.Request(t.Context(), who, "echo", gate.Ask{}); err != nil || fresh || got.ID != a.ID {
		t.Errorf("got %+v, %v, %v, want the denied question", got, fresh, err)
	}
}
