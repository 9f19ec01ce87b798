package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// end makes a program that ends so.
func end(e backend.Exit) func(*fakeRun) backend.Exit {
	return func(*fakeRun) backend.Exit { return e }
}

// flood writes more than sixteen times 10 bytes, and then goes on as then says.
func flood(then func(*fakeRun) backend.Exit) func(*fakeRun) backend.Exit {
	return func(r *fakeRun) backend.Exit {
		for range 17 {
			fmt.Fprint(r.Stdout, "0123456789")
		}
		return then(r)
	}
}

func TestOutcomes(t *testing.T) {
	hang := (*fakeRun).Hang
	short := sandboxmcp.Limits{TimeoutSeconds: 0.05}
	little := sandboxmcp.Limits{MaxOutputBytes: 10}
	oom := backend.Usage{OOMKills: 1}
	for name, c := range map[string]struct {
		program func(*fakeRun) backend.Exit
		usage   backend.Usage
		limits  sandboxmcp.Limits
		cancel  bool // the caller goes away while it runs

		status sandboxmcp.Status
		exit   int
		signal string
		stderr string
	}{
		"Exit0":         {program: end(backend.Exit{}), status: "completed"},
		"Exit1":         {program: end(backend.Exit{Code: 1}), status: "failed", exit: 1},
		"Exit3":         {program: end(backend.Exit{Code: 3}), status: "failed", exit: 3},
		"Exit124":       {program: end(backend.Exit{Code: 124}), status: "failed", exit: 124},
		"Exit137":       {program: end(backend.Exit{Code: 137}), status: "failed", exit: 137},
		"Exit153":       {program: end(backend.Exit{Code: 153}), status: "failed", exit: 153},
		"Exit255":       {program: end(backend.Exit{Code: 255}), status: "failed", exit: 255},
		"SIGTERM":       {program: end(backend.Exit{Signal: 15}), status: "signalled", exit: 143, signal: "SIGTERM"},
		"SIGSEGV":       {program: end(backend.Exit{Signal: 11}), status: "signalled", exit: 139, signal: "SIGSEGV"},
		"SIGKILL":       {program: end(backend.Exit{Signal: 9}), status: "signalled", exit: 137, signal: "SIGKILL"},
		"SIGSYS":        {program: end(backend.Exit{Signal: 31}), status: "signalled", exit: 159, signal: "SIGSYS"},
		"RealTime":      {program: end(backend.Exit{Signal: 34}), status: "signalled", exit: 162, signal: "SIG34"},
		"OwnSIGXCPU":    {program: end(backend.Exit{Signal: 24}), usage: backend.Usage{CPU: time.Second}, status: "signalled", exit: 152, signal: "SIGXCPU"},
		"CPUTime":       {program: end(backend.Exit{Signal: 24}), usage: backend.Usage{CPU: 62 * time.Second}, status: "timed_out", exit: -1, stderr: "Execution timed out after 60s\n"},
		"CPUTimeKilled": {program: end(backend.Exit{Signal: 9}), usage: backend.Usage{CPU: 62 * time.Second}, status: "timed_out", exit: -1, stderr: "Execution timed out after 60s\n"},
		"OutOfMemory":   {program: end(backend.Exit{Signal: 9}), usage: oom, status: "out_of_memory", exit: 137, signal: "SIGKILL"},
		"MemoryExit1":   {program: end(backend.Exit{Code: 1}), usage: oom, status: "out_of_memory", exit: 137, signal: "SIGKILL"},
		"ChildOnly":     {program: end(backend.Exit{}), usage: oom, status: "completed"}, // it went on without its child
		"Timeout":       {program: hang, limits: short, status: "timed_out", exit: -1, stderr: "Execution timed out after 0.05s\n"},
		"OutputLimit":   {program: flood(hang), limits: little, status: "output_limit", exit: -1},
		"Cancelled":     {program: hang, cancel: true, status: "cancelled", exit: -1},
		// Two causes: the first one that stopped it is told, whatever else the kernel did.
		"FloodThenTimeout":   {program: flood(hang), limits: sandboxmcp.Limits{MaxOutputBytes: 10, TimeoutSeconds: 0.05}, status: "output_limit", exit: -1},
		"OutOfMemoryInFlood": {program: flood(hang), limits: little, usage: oom, status: "output_limit", exit: -1},
		"FloodReadLate": {
			program: func(r *fakeRun) backend.Exit { r.Late = strings.Repeat("x", 161); return backend.Exit{} },
			limits:  little, status: "output_limit", exit: -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := &fake{usage: c.usage}
			f.program = func(r *fakeRun) backend.Exit {
				if c.cancel {
					cancel()
				}
				return c.program(r)
			}
			dir := filepath.Join(t.TempDir(), "state")
			e := open(t, f, at(dir))
			req := shell("x")
			req.Limits = c.limits
			res, err := e.Execute(ctx, sandboxmcp.Caller{}, req)
			if err != nil {
				t.Fatal(err)
			}
			type told struct {
				Status  sandboxmcp.Status
				Exit    int
				Signal  string
				Success bool
				Stderr  string
			}
			got := told{res.Status, res.ExitCode, res.Signal, res.Success, res.Stderr}
			if diff := cmp.Diff(told{c.status, c.exit, c.signal, c.status == "completed", c.stderr}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			want := map[sandboxmcp.Status]int64{}
			for _, s := range sandboxmcp.Statuses() {
				want[s] = 0
			}
			want[c.status] = 1
			if got := stats(e).Executions; !maps.Equal(got, want) {
				t.Errorf("counted %v, want one %s", got, c.status)
			}
			var actions []string
			for _, r := range rows(t, dir, "default") {
				actions = append(actions, r.Action)
			}
			note := map[sandboxmcp.Status]string{"timed_out": "timeout", "out_of_memory": "resource_exceeded", "output_limit": "resource_exceeded"}[c.status]
			if want := []string{"execute", "execute", note}; !slices.Equal(actions, want) && (note != "" || !slices.Equal(actions, want[:2])) {
				t.Errorf("the audit holds %v, want %v", actions, want)
			}
		})
	}
}

// TestTimeoutLine: the line that reports a timeout is the last one and begins at the start of
// a line, in the result and in the live output.
func TestTimeoutLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ said, want string }{
		"Silent":    {"", "Execution timed out after 1s\n"},
		"Newline":   {"half\n", "half\nExecution timed out after 1s\n"},
		"NoNewline": {"half", "half\nExecution timed out after 1s\n"},
		"Cut":       {"0123456789abc", "0123456789\nExecution timed out after 1s\n"},
		"CutAtLine": {"012345678\nabc", "012345678\nExecution timed out after 1s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{}
			f.program = func(r *fakeRun) backend.Exit {
				fmt.Fprint(r.Stdout, "partial")
				fmt.Fprint(r.Stderr, c.said)
				return r.Hang()
			}
			var live bytes.Buffer
			res := execute(t, open(t, f), sandboxmcp.Request{Code: "x", Language: sandboxmcp.Shell, Stderr: &live, Limits: sandboxmcp.Limits{TimeoutSeconds: 1, MaxOutputBytes: 10}})
			if res.Status != sandboxmcp.StatusTimedOut || res.Stderr != c.want || res.Stdout != "partial" {
				t.Errorf("got %s, stderr %q, stdout %q; want stderr %q and what it had said", res.Status, res.Stderr, res.Stdout, c.want)
			}
			if live.String() != c.want {
				t.Errorf("live output: got %q, want that of the result", live.String())
			}
			if res.DurationMS < 1000 {
				t.Errorf("it took %v ms, want at least 1000", res.DurationMS)
			}
		})
	}
}

// TestCapture: what a result keeps of a stream.
func TestCapture(t *testing.T) {
	for name, c := range map[string]struct {
		writes []string
		want   string
		live   string // empty: as want
		cut    bool
	}{
		"Nothing":         {writes: nil, want: ""},
		"Below":           {writes: []string{"012", "345"}, want: "012345"},
		"Exact":           {writes: []string{"0123456789"}, want: "0123456789"},
		"ExactInParts":    {writes: []string{"01234", "56789"}, want: "0123456789"},
		"OneMore":         {writes: []string{"0123456789a"}, want: "0123456789", cut: true},
		"OneMoreAlone":    {writes: []string{"0123456789", "a"}, want: "0123456789", cut: true},
		"SixteenTimes":    {writes: []string{strings.Repeat("x", 160)}, want: "xxxxxxxxxx", cut: true},
		"CutRune2":        {writes: []string{"012345678éx"}, want: "012345678", live: "012345678\xc3", cut: true},
		"CutRune3":        {writes: []string{"01234567€x"}, want: "01234567", live: "01234567\xe2\x82", cut: true},
		"CutRune4":        {writes: []string{"0123456😀"}, want: "0123456", live: "0123456\xf0\x9f\x98", cut: true},
		"WholeRune":       {writes: []string{"01234567é!"}, want: "01234567é", cut: true},
		"RuneInTwoWrites": {writes: []string{"a\xc3", "\xa9b"}, want: "aéb"},
		"Invalid":         {writes: []string{"a\xffb\xc3"}, want: "a\ufffdb\ufffd", live: "a\xffb\xc3"},
		"InvalidAndCut":   {writes: []string{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"}, want: strings.Repeat("\ufffd", 10), live: strings.Repeat("\xff", 10), cut: true},
		"Surrogate":       {writes: []string{"\xed\xa0\x80"}, want: "\ufffd\ufffd\ufffd", live: "\xed\xa0\x80"},
		"NUL":             {writes: []string{"a\x00\x1b[1m"}, want: "a\x00\x1b[1m"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fake{}
			write := func(w io.Writer) {
				for _, s := range c.writes {
					if n, err := io.WriteString(w, s); n != len(s) || err != nil {
						t.Errorf("a write of %d bytes: got %d and %v, want all of it: the program must not notice the limit", len(s), n, err)
					}
				}
			}
			f.program = func(r *fakeRun) backend.Exit {
				write(r.Stdout)
				write(r.Stderr)
				return backend.Exit{}
			}
			var out, errs bytes.Buffer
			e := open(t, f)
			res := execute(t, e, sandboxmcp.Request{Code: "x", Language: sandboxmcp.Shell, Limits: sandboxmcp.Limits{MaxOutputBytes: 10}, Stdout: &out, Stderr: &errs})
			live := c.live
			if live == "" {
				live = c.want
			}
			for stream, got := range map[string]struct {
				kept, live string
				cut        bool
			}{"stdout": {res.Stdout, out.String(), res.StdoutTruncated}, "stderr": {res.Stderr, errs.String(), res.StderrTruncated}} {
				if got.kept != c.want || got.cut != c.cut || got.live != live {
					t.Errorf("%s: got %q, cut %v, live %q; want %q, %v, %q", stream, got.kept, got.cut, got.live, c.want, c.cut, live)
				}
				again, err := e.Output(t.Context(), sandboxmcp.Caller{}, res.RequestID, stream)
				if err != nil || string(again) != c.want {
					t.Errorf("%s as kept: got %q, %v; want what the result has", stream, again, err)
				}
			}
			if res.Status != sandboxmcp.StatusCompleted {
				t.Errorf("got %s, want completed: at most 16 times the cap is borne", res.Status)
			}
		})
	}
}

// TestLive: a caller's writer gets the output while the program runs, and an error of that
// writer does not end the run.
func TestLive(t *testing.T) {
	arrived := make(chan struct{})
	f := &fake{}
	f.program = func(r *fakeRun) backend.Exit {
		fmt.Fprint(r.Stdout, "first")
		select {
		case <-arrived:
			return backend.Exit{}
		case <-timeUp(t, time.Minute):
			return backend.Exit{Code: 1}
		}
	}
	res := execute(t, open(t, f), sandboxmcp.Request{Code: "x", Language: sandboxmcp.Shell, Stdout: brokenWriter(func() { close(arrived) })})
	if !res.Success || res.Stdout != "first" {
		t.Errorf("got %+v, want that it ran to its end", res)
	}
}

type brokenWriter func()

func (b brokenWriter) Write([]byte) (int, error) {
	b()
	return 0, io.ErrClosedPipe
}

// TestSlowWatcher: a caller's writer that is slow, or blocks, delays neither the program nor
// its end, nor other requests.
func TestSlowWatcher(t *testing.T) {
	f := &fake{}
	f.program = func(r *fakeRun) backend.Exit {
		for range 1000 {
			fmt.Fprintln(r.Stdout, "a line")
		}
		return backend.Exit{}
	}
	e := open(t, f, one)
	stuck, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	r := shell("x")
	r.Stdout = brokenWriter(func() {
		select {
		case <-stuck:
		default:
			close(stuck)
		}
		<-release
	})
	ctx, cancel := context.WithCancel(t.Context())
	wait := executeIn(ctx, t, e, r)
	<-stuck
	if res := execute(t, e, shell("another")); !res.Success {
		t.Errorf("the next run: got %+v, want success", res)
	}
	cancel() // it has ended, and only the watcher is waited for
	if res, err := wait(); err != nil || !res.Success || len(res.Stdout) != 7000 {
		t.Errorf("got %s, %d bytes, %v; want completed with all of its output", res.Status, len(res.Stdout), err)
	}
}

// TestReport: what the driver reports on its channel.
func TestReport(t *testing.T) {
	syntax := map[string]any{"type": "syntax", "name": "SyntaxError", "message": "'(' was never closed", "line": 1, "col": 6}
	program := func(r *fakeRun) backend.Exit {
		if r.Code() == "print(" {
			r.Frame(syntax)
			return backend.Exit{Code: 1}
		}
		r.Frame(map[string]any{"type": "start"})
		r.Frame(syntax) // forged: it has begun already
		r.Frame(map[string]any{"type": "display", "data": map[string]any{"text/plain": "2", "is_main_result": true}})
		r.Frame(map[string]any{"type": "error", "name": "ValueError", "value": "boom", "traceback": []string{"a", "b"}})
		return backend.Exit{Code: 1}
	}
	e := open(t, &fake{program: program, files: map[string]string{"a": "A"}})

	res := execute(t, e, sandboxmcp.Request{Code: "print(", Display: sandboxmcp.DisplayStdout})
	if res.Status != sandboxmcp.StatusRejected || res.ExitCode != 1 || len(res.Artifacts) != 0 {
		t.Errorf("got %s, exit %d, %d artifacts; want rejected, 1 and none", res.Status, res.ExitCode, len(res.Artifacts))
	}
	if want := "Validation failed: [REJECT] 1 issue(s)\n  L1: SyntaxError: '(' was never closed\n"; res.Stderr != want {
		t.Errorf("got stderr %q, want %q", res.Stderr, want)
	}
	if v, ok := res.Metadata["validation"].(map[string]any); !ok || v["valid"] != false || v["verdict"] != "reject" {
		t.Errorf("got metadata %v", res.Metadata)
	}
	if res = execute(t, e, sandboxmcp.Request{Code: "print("}); res.Status != sandboxmcp.StatusFailed || res.Stderr != "" {
		t.Errorf("as the plain interpreter it is %s with stderr %q, want failed and the interpreter's own words", res.Status, res.Stderr)
	}
	res = execute(t, e, sandboxmcp.Request{Code: "raise", Display: sandboxmcp.DisplayStdout})
	if res.Status != sandboxmcp.StatusFailed {
		t.Errorf("got %s, want failed: a program cannot say that it was not run", res.Status)
	}
	if diff := cmp.Diff(&sandboxmcp.ProgramError{Name: "ValueError", Value: "boom", Traceback: []string{"a", "b"}}, res.Error); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]sandboxmcp.RichResult{{"text/plain": "2", "is_main_result": true}}, res.Results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if res = execute(t, e, shell("x")); res.Results == nil || res.Error != nil || res.Artifacts == nil {
		t.Errorf("got results %v, error %v; want none, and lists that are not null", res.Results, res.Error)
	}
}

// TestMostOfABackend: ceilings of a backend bound its sandboxes and the limits that results report. Only a limit
// that was asked for is named.
func TestMostOfABackend(t *testing.T) {
	f := &fake{}
	e := open(t, f, func(c *engine.Config) {
		c.Most = map[string]sandboxmcp.Limits{f.Name(): {MaxRAMMB: 96, MaxCPUCores: 0.25}, "another": {MaxRAMMB: 1}}
	})
	res := execute(t, e, shell("x"))
	if s := f.specs[0]; s.MemoryBytes != 96<<20 || s.CPUCores != 0.25 || res.Metadata["clamped"] != nil {
		t.Errorf("defaults: got %d bytes, %v cores, %v; want 96 MiB, 0.25 cores, nothing named", s.MemoryBytes, s.CPUCores, res.Metadata)
	}
	over := shell("x")
	over.Limits = sandboxmcp.Limits{MaxRAMMB: 97}
	if diff := cmp.Diff([]string{"max_ram_mb"}, execute(t, e, over).Metadata["clamped"]); diff != "" || f.specs[1].MemoryBytes != 96<<20 {
		t.Errorf("got %d bytes, clamped (-want +got):\n%s", f.specs[1].MemoryBytes, diff)
	}
	f.program = func(*fakeRun) backend.Exit { f.usage = backend.Usage{OOMKills: 1}; return backend.Exit{Signal: 9} }
	if note := execute(t, e, shell("x")).Note; !strings.Contains(note, "That is the most that a run may have") {
		t.Errorf("got the note %q, want that there is no more memory", note)
	}
}

// shutFiles are the files of a sandbox that has ended.
type shutFiles struct{ backend.Files }

func (shutFiles) List(context.Context, string, int) ([]backend.FileInfo, bool, error) {
	return nil, false, fs.ErrClosed
}

// TestMemoryThatEndsTheSandbox: if the limit of memory has ended the sandbox with the program, the result
// says so, without files. If the sandbox was lost for another reason, the run fails.
func TestMemoryThatEndsTheSandbox(t *testing.T) {
	f := &fake{program: func(*fakeRun) backend.Exit { return backend.Exit{Signal: 9, Lost: true} }, onFiles: func(x backend.Files) backend.Files { return shutFiles{x} }}
	e := open(t, f)
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("x")); code(err) != sandboxmcp.CodeExecutionFailed {
		t.Errorf("lost: got %v, want %s", err, sandboxmcp.CodeExecutionFailed)
	}
	f.program = func(*fakeRun) backend.Exit {
		f.usage = backend.Usage{OOMKills: 1}
		return backend.Exit{Signal: 9, Lost: true}
	}
	res := execute(t, e, shell("x"))
	if res.Status != sandboxmcp.StatusOutOfMemory || res.ExitCode != sandboxmcp.ExitOutOfMemory || len(res.Artifacts) != 0 || res.Receipt == nil || !strings.HasSuffix(res.Note, "The files that it made are gone.") {
		t.Errorf("memory: got %+v, want out_of_memory without files", res)
	}
}

// TestClamped: a limit above its ceiling is lowered and named, or refused.
func TestClamped(t *testing.T) {
	f := &fake{}
	e := open(t, f, func(c *engine.Config) {
		c.Ceilings = sandboxmcp.Limits{MaxRAMMB: 256, TimeoutSeconds: 5, MaxCPUCores: 1, MaxProcesses: 4, MaxOutputBytes: 1000}
	})
	if res := execute(t, e, shell("x")); res.Usage.MaxTasks != 64 || f.specs[0].MemoryBytes != 256<<20 || res.Metadata["clamped"] != nil {
		t.Errorf("defaults: got %+v, %+v, %v; want them within the ceilings", res.Usage, f.specs[0], res.Metadata)
	}
	over := shell("x")
	over.Limits = sandboxmcp.Limits{MaxRAMMB: 257, MaxProcesses: 4, MaxOutputBytes: 1 << 40}
	res := execute(t, e, over)
	if diff := cmp.Diff([]string{"max_ram_mb", "max_output_bytes"}, res.Metadata["clamped"]); diff != "" {
		t.Errorf("clamped (-want +got):\n%s", diff)
	}
	values := map[string]map[string]float64{"max_ram_mb": {"asked": 257, "given": 256}, "max_output_bytes": {"asked": 1 << 40, "given": 1000}}
	if diff := cmp.Diff(values, res.Metadata["clamped_values"]); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	if f.specs[1].MemoryBytes != 256<<20 {
		t.Errorf("the sandbox got %d bytes", f.specs[1].MemoryBytes)
	}
	over.Strict = true
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, over)
	if bad := asCode(t, err, sandboxmcp.CodeLimitExceedsCap); !strings.Contains(bad.Message, "max_ram_mb, max_output_bytes") || strings.Contains(bad.Message, "max_processes is") {
		t.Errorf("got message %q", bad.Message)
	}
	if n, _ := f.starts(); n != 2 {
		t.Errorf("%d programs were started, want 2", n)
	}
}
