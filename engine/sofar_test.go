package engine_test

import (
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestALookUpHasTheOutputSoFar: who looks up a run that goes on gets what it has printed, and how
// long it has run.
func TestALookUpHasTheOutputSoFar(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Shell)
	started, err := e.Start(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Language: sandboxmcp.Shell, Code: "echo begun; echo worse >&2; sleep 300", Limits: sandboxmcp.Limits{TimeoutSeconds: 301}})
	if err != nil {
		t.Fatal(err)
	}
	var got sandboxmcp.Result
	if !testkit.Within(t, 30*time.Second, func() bool {
		if got, err = e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: started.RequestID}); err != nil {
			t.Fatal(err)
		}
		return got.Stdout != "" && got.Stderr != ""
	}) {
		t.Fatalf("got no output of a run that goes on: %+v", got)
	}
	if got.Status != sandboxmcp.StatusRunning || got.Stdout != "begun\n" || got.Stderr != "worse\n" || got.ElapsedSeconds <= 0 || got.TimeoutSeconds != 301 {
		t.Errorf("got status %s, stdout %q, stderr %q, %v of %v seconds; want those of a run that goes on", got.Status, got.Stdout, got.Stderr, got.ElapsedSeconds, got.TimeoutSeconds)
	}
	ended, err := e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: started.RequestID, Cancel: true, Wait: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if ended.Status != sandboxmcp.StatusCancelled || ended.Stdout != "begun\n" || ended.ElapsedSeconds != 0 {
		t.Errorf("after its end: got status %s, stdout %q and %v seconds; want it cancelled, with its output", ended.Status, ended.Stdout, ended.ElapsedSeconds)
	}
}

// TestResultsHaveNotes: a run that was stopped has a note with its cause and the parameter to
// change. The note of the first run in a session also says that the session is new.
func TestResultsHaveNotes(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Shell)
	old := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
	r := in("brandnew", "sleep 30")
	r.Language, r.Limits.TimeoutSeconds = sandboxmcp.Shell, 0.5
	first := execute(t, e, r)
	want := "Session brandnew was new and empty. Existing sessions: " + string(old) + ". Stopped after 0.5 s. Pass timeout_seconds (up to 3600), above 45 s with background. Variables and files are kept."
	if !first.SessionCreated || first.Note != want {
		t.Errorf("first run: got created %t and %q, want %q", first.SessionCreated, first.Note, want)
	}
	r.Code = "true"
	if second := execute(t, e, r); second.SessionCreated || second.Note != "" {
		t.Errorf("second run: got created %t and %q, want neither", second.SessionCreated, second.Note)
	}
	stored, err := e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: first.RequestID})
	if err != nil || stored.Note != want || !stored.SessionCreated {
		t.Errorf("the stored result: got %q (%v), want the same note", stored.Note, err)
	}
}
