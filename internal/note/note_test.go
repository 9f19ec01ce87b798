package note_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/note"
)

func run(status sandboxmcp.Status, change ...func(*note.Run)) note.Run {
	id := sandboxmcp.SessionID("big")
	limits := sandboxmcp.DefaultLimits()
	r := note.Run{
		Result: &sandboxmcp.Result{Status: status, SessionID: &id, Usage: sandboxmcp.ResourceUsage{MaxTasks: 160, PeakTasks: 2}},
		Limits: limits, Ceilings: sandboxmcp.DefaultCeilings(2), Open: 1,
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func session(keeps bool) func(*note.Run) {
	return func(r *note.Run) { r.Session, r.Keeps = true, keeps }
}

func lost(r *note.Run) { r.Result.StateLost = true }

func raised(name, value string) func(*note.Run) {
	return func(r *note.Run) { r.Result.Error = &sandboxmcp.ProgramError{Name: name, Value: value} }
}

func TestNotes(t *testing.T) {
	for _, c := range []struct {
		name string
		run  note.Run
		want string
	}{
		{"plain", run(sandboxmcp.StatusCompleted), ""},
		{"plain in a session", run(sandboxmcp.StatusCompleted, session(true)), ""},
		{"an exit code", run(sandboxmcp.StatusFailed), ""},
		{"an exception that says all", run(sandboxmcp.StatusFailed, raised("ValueError", "boom")), ""},
		{"the syntax", run(sandboxmcp.StatusRejected), ""},
		{"cancelled", run(sandboxmcp.StatusCancelled, session(true)), ""},
		{"memory", run(sandboxmcp.StatusOutOfMemory), "Stopped at 512 MiB. Pass max_ram_mb (up to 8192) or read the data in parts."},
		{"memory of a session", run(sandboxmcp.StatusOutOfMemory, session(true), lost), "Stopped at 512 MiB. Read the data in parts, or make a session with a higher max_ram_mb (up to 8192). The session's variables are gone, its files are not."},
		{"all memory", run(sandboxmcp.StatusOutOfMemory, func(r *note.Run) { r.Limits.MaxRAMMB = 8192 }), "Stopped at 8192 MiB. That is the most that a run may have: read the data in parts."},
		{"memory as Python tells it", run(sandboxmcp.StatusFailed, raised("MemoryError", "")), "Python got no more memory: the limit is 512 MiB. Pass max_ram_mb (up to 8192) or read the data in parts."},
		{"time", run(sandboxmcp.StatusTimedOut), "Stopped after 60 s. Pass timeout_seconds (up to 3600), above 45 s with background."},
		{"time of a session", run(sandboxmcp.StatusTimedOut, session(true)), "Stopped after 60 s. Pass timeout_seconds (up to 3600), above 45 s with background. Variables and files are kept."},
		{"time of a session without variables", run(sandboxmcp.StatusTimedOut, session(false)), "Stopped after 60 s. Pass timeout_seconds (up to 3600), above 45 s with background. Files are kept."},
		{"all time", run(sandboxmcp.StatusTimedOut, func(r *note.Run) { r.Limits.TimeoutSeconds = 3600 }), "Stopped after 3600 s. That is the most that a run may take: do the work in parts."},
		{"output", run(sandboxmcp.StatusOutputLimit), "Stopped at 16,000,000 bytes of output. Write it to a file in /mnt/data and print a part."},
		{"cut output", run(sandboxmcp.StatusCompleted, func(r *note.Run) { r.Result.StderrTruncated = true }), "The first 1,000,000 bytes of stderr are kept: write the rest to a file in /mnt/data, or pass max_output_bytes."},
		{"a signal", run(sandboxmcp.StatusSignalled, func(r *note.Run) { r.Result.Signal = "SIGSEGV" }, session(true), lost), "The program was ended by the signal SIGSEGV. The session's variables are gone, its files are not."},
		{"lost state alone", run(sandboxmcp.StatusFailed, session(true), lost), "The session's variables are gone, its files are not."},
		{"a module without sets", run(sandboxmcp.StatusFailed, raised("ModuleNotFoundError", "No module named 'plotly.express'")), "plotly is not installed, only Python's own library is. The user can run `sandboxmcp setup science` for numpy, pandas, matplotlib and more."},
		{"a module beside sets", run(sandboxmcp.StatusFailed, raised("ModuleNotFoundError", "No module named 'plotly'"), func(r *note.Run) { r.Packages = []string{"numpy", "pandas"} }), "plotly is not installed. Installed: numpy, pandas."},
		{"a message of another kind", run(sandboxmcp.StatusFailed, raised("ModuleNotFoundError", "it's not here")), ""},
		{"tasks", run(sandboxmcp.StatusFailed, raised("BlockingIOError", "[Errno 11]"), func(r *note.Run) { r.Result.Usage.PeakTasks = 160 }), "Probably more than 10 processes were tried: pass max_processes."},
		{"a refused host", run(sandboxmcp.StatusCompleted, func(r *note.Run) {
			r.Result.Network.Denied = []sandboxmcp.DeniedRequest{{Host: "api.site.test", Port: 443}}
		}), "No connection to api.site.test: the domain is not open. Call request_egress with it; retries do not help."},
		{"no open domain", run(sandboxmcp.StatusFailed, func(r *note.Run) {
			r.Open, r.Result.Stderr = 0, "curl: (6) Could not resolve host: api.site.test\n"
		}), "Probably a connection was tried: no domain is open. Call request_egress with the host name; retries do not help."},
		{"a name that does not exist beside open domains", run(sandboxmcp.StatusFailed, func(r *note.Run) { r.Result.Stderr = "getaddrinfo ENOTFOUND api.site.test" }), ""},
		{"a new session", run(sandboxmcp.StatusCompleted, func(r *note.Run) { r.Result.SessionCreated = true }), "Session big is new and empty."},
		{"a new session beside others", run(sandboxmcp.StatusTimedOut, session(true), func(r *note.Run) {
			r.Result.SessionCreated, r.Others = true, []sandboxmcp.SessionID{"ds", "js"}
		}), "Session big is new and empty. Existing sessions: ds, js. Stopped after 60 s. Pass timeout_seconds (up to 3600), above 45 s with background. Variables and files are kept."},
	} {
		if got := note.Of(c.run); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestNotesAreBounded: what a note lists does not grow with what there is.
func TestNotesAreBounded(t *testing.T) {
	many := strings.Split(strings.TrimSuffix(strings.Repeat("package,", 1000), ","), ",")
	r := run(sandboxmcp.StatusFailed, raised("ModuleNotFoundError", "No module named 'x'"), func(r *note.Run) { r.Packages = many })
	r.Result.SessionCreated = true
	for range 1000 {
		r.Others = append(r.Others, "another")
	}
	got := note.Of(r)
	if len(got) > 600 || !strings.Contains(got, " and more.") {
		t.Errorf("got %d bytes (%.80q…), want at most 600, which say that there is more", len(got), got)
	}
}
