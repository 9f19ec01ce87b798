package note_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/note"
)

// tools are those that notes may name.
var tools = strings.Fields(`execute_code install_package validate_code create_session terminate_session bridge_data
	list_runtimes set_resource_limits sandbox_stats inspect_state get_artifacts request_egress audit_execution
	sandbox_upload_file sandbox_run_python sandbox_read_artifact sandbox_list_artifacts sandbox_close_session`)

var toolName = regexp.MustCompile(`\b(` + strings.Join(tools, "|") + `)\b`)

// ends are runs whose notes name what helps.
func ends() map[string]note.Run {
	large := func(r *note.Run) { r.Files.Large = true }
	installs := func(r *note.Run) { r.Installs, r.Result.Language = true, sandboxmcp.Python }
	return map[string]note.Run{
		"memory in a session":      run(sandboxmcp.StatusOutOfMemory, session(true)),
		"time":                     run(sandboxmcp.StatusTimedOut),
		"a refused host":           run(sandboxmcp.StatusCompleted, refused),
		"no open domain":           run(sandboxmcp.StatusFailed, func(r *note.Run) { r.Open, r.Result.Stderr = 0, "curl: (6) Could not resolve host: x\n" }),
		"tasks in a session":       run(sandboxmcp.StatusFailed, session(true), bombed, raised("BlockingIOError", "[Errno 11]")),
		"a module":                 run(sandboxmcp.StatusFailed, raised("ModuleNotFoundError", "No module named 'plotly'"), installs),
		"a package of node":        run(sandboxmcp.StatusFailed, node("Error: Cannot find module 'lodash'\n"), func(r *note.Run) { r.Installs = true }),
		"a large file":             run(sandboxmcp.StatusCompleted, session(true), large),
		"a forgotten name":         run(sandboxmcp.StatusFailed, session(false), raised("NameError", "name 'x' is not defined")),
		"a key that is withheld":   run(sandboxmcp.StatusFailed, raised("KeyError", "'API_KEY'"), withheld),
		"a variable that is unset": run(sandboxmcp.StatusFailed, unset),
	}
}

// TestNotesNameOnlyWhatTheReaderCanCall: no note names a tool that its reader cannot call, whichever
// tools a server offers.
func TestNotesNameOnlyWhatTheReaderCanCall(t *testing.T) {
	for name, r := range ends() {
		check := func(a note.Audience) {
			r.Audience = a
			for _, tool := range toolName.FindAllString(note.Of(r), -1) {
				own := a.Reader == sandboxmcp.ReaderPython && tool == "sandbox_run_python" // the tool that is running
				if !own && (slices.Contains(a.Unoffered, tool) || a.Reader == sandboxmcp.ReaderREST || a.Reader == sandboxmcp.ReaderTerminal) {
					t.Errorf("%s, %q without %v: got %q, which names %s", name, a.Reader, a.Unoffered, note.Of(r), tool)
				}
			}
		}
		for _, reader := range []sandboxmcp.Reader{sandboxmcp.ReaderTools, sandboxmcp.ReaderPython, sandboxmcp.ReaderREST, sandboxmcp.ReaderTerminal} {
			check(note.Audience{Reader: reader, Unoffered: tools})
			for _, one := range tools {
				check(note.Audience{Reader: reader, Unoffered: []string{one}})
			}
		}
	}
	for _, reader := range []sandboxmcp.Reader{sandboxmcp.ReaderTools, sandboxmcp.ReaderREST} {
		if got := note.Busy(note.Audience{Reader: reader, Unoffered: tools}, "37cf", true); toolName.MatchString(got) || !strings.Contains(got, "37cf") {
			t.Errorf("busy: got %q for %q, want the request and no tool", got, reader)
		}
	}
}

// TestNotesOnClosedDomains: what a note says of a closed domain is what its reader can do about it.
func TestNotesOnClosedDomains(t *testing.T) {
	none := []string{"request_egress"}
	off := func(r *note.Run) { r.NoAsking = true }
	for _, c := range []struct {
		audience note.Audience
		change   func(*note.Run)
		want     string
	}{
		{note.Audience{}, refused, "Call request_egress with it; retries do not help."},
		{note.Audience{Unoffered: none}, refused, "The user can open it with `sandboxmcp egress api.site.test`; retries do not help."},
		{note.Audience{Reader: sandboxmcp.ReaderREST}, refused, "Ask for it by POST /approvals; an operator answers by POST /approvals/{id}. Retries do not help."},
		{note.Audience{}, off, "Only the operator's settings open domains; retries do not help."},
		{note.Audience{Unoffered: none}, off, "Only the operator's settings open domains; retries do not help."},
		{note.Audience{Reader: sandboxmcp.ReaderREST}, off, "Only the operator's settings open domains; retries do not help."},
		{note.Audience{Reader: sandboxmcp.ReaderTerminal}, off, "Only the operator's settings open domains; retries do not help."},
		{note.Audience{Reader: sandboxmcp.ReaderPython}, off, "Only the operator's settings open domains; retries do not help."},
	} {
		r := run(sandboxmcp.StatusCompleted, refused, c.change)
		r.Audience = c.audience
		if got, want := note.Of(r), "No connection to api.site.test: the domain is not open. "+c.want; got != want {
			t.Errorf("%+v: got %q, want %q", c.audience, got, want)
		}
	}
}
