package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// create makes a session that is ended with the engine.
func create(t *testing.T, e *engine.Engine, spec sandboxmcp.SessionSpec, who ...sandboxmcp.Caller) sandboxmcp.SessionID {
	t.Helper()
	s, err := e.CreateSession(t.Context(), callerOf(who), spec)
	if err != nil {
		t.Fatal(err)
	}
	if s.Status != sandboxmcp.SessionIdle || s.Isolation == nil || len(s.Isolation.Walls) == 0 || !s.ExpiresAt.After(s.CreatedAt) {
		t.Errorf("session: got %+v, want it idle, with walls and an expiry", s)
	}
	return s.ID
}

// in is a request of a session.
func in(id sandboxmcp.SessionID, code string) sandboxmcp.Request {
	return sandboxmcp.Request{SessionID: id, Code: code, Display: sandboxmcp.DisplayStdout}
}

func code(err error) sandboxmcp.Code {
	if err == nil {
		return ""
	}
	return sandboxmcp.CodeOf(err)
}

func artifactNames(r sandboxmcp.Result) string {
	var names []string
	for _, a := range r.Artifacts {
		names = append(names, a.Name)
	}
	return strings.Join(names, " ")
}

func TestSessionKeepsState(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{})
	execute(t, e, in(id, "import math\nx = [40]\nopen('f.txt', 'w').write('kept')\nNone"))
	r := execute(t, e, in(id, "x[0] += 2\nprint(x[0], open('f.txt').read())\nx[0]"))
	if r.Stdout != "42 kept\n" || len(r.Results) != 1 || r.Results[0]["text/plain"] != "42" || r.StateLost || r.SessionID == nil || *r.SessionID != id {
		t.Errorf("the second cell: got %+v, want the state of the first", r)
	}
	if r.Receipt == nil || r.Isolation == nil || r.Isolation.Tier == sandboxmcp.TierL0 {
		t.Errorf("got receipt %v, isolation %+v; want both", r.Receipt, r.Isolation)
	}
	if r = execute(t, e, in(id, "raise RuntimeError('no')")); r.Status != sandboxmcp.StatusFailed || r.Error == nil || r.Error.Name != "RuntimeError" || r.StateLost {
		t.Errorf("a cell that raises: got %+v, want failed, with RuntimeError and the state kept", r)
	}
	if r = execute(t, e, in(id, "print(")); r.Status != sandboxmcp.StatusFailed || !strings.Contains(r.Stderr, "SyntaxError") {
		t.Errorf("wrong syntax: got %s %q, want failed and SyntaxError", r.Status, r.Stderr)
	}
	if r = execute(t, e, in(id, "import sys; sys.exit(3)")); r.Status != sandboxmcp.StatusFailed || r.ExitCode != 3 || r.StateLost {
		t.Errorf("sys.exit: got %s %d, lost %v; want failed, 3 and the state kept", r.Status, r.ExitCode, r.StateLost)
	}
	if r = execute(t, e, in(id, "print(x)")); r.Stdout != "[42]\n" {
		t.Errorf("afterwards: got %q, want [42]", r.Stdout)
	}
	got, err := e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: r.RequestID})
	if err != nil || got.SessionID == nil || *got.SessionID != id {
		t.Errorf("Lookup: %+v, %v", got.SessionID, err)
	}
}

// Each end of an interpreter is reported once, with the next run, and the session's files
// stay.
func TestSessionSaysWhatItLost(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	for name, c := range map[string]struct {
		code   string
		status sandboxmcp.Status
		exit   int
	}{
		"exit":    {"import os; os._exit(3)", sandboxmcp.StatusFailed, 3},
		"crash":   {"import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", sandboxmcp.StatusSignalled, 139},
		"exec":    {"import os; os.execv('/bin/true', ['true'])", sandboxmcp.StatusCompleted, 0},
		"channel": {"import os; os.close(3)\nimport time; time.sleep(30)", sandboxmcp.StatusFailed, 1},
		"timeout": {"import time\nwhile True:\n    try: time.sleep(30)\n    except BaseException: pass", sandboxmcp.StatusTimedOut, -1},
		"memory":  {"x = []\nwhile True: x.append(bytearray(1 << 20))", sandboxmcp.StatusOutOfMemory, 137},
		"flood":   {"while True: print('x' * 1000)", sandboxmcp.StatusOutputLimit, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := create(t, e, sandboxmcp.SessionSpec{Limits: sandboxmcp.Limits{MaxRAMMB: 128, MaxOutputBytes: 10_000}})
			execute(t, e, in(id, "x = 5; open('f', 'w').write('kept')"))
			req := in(id, c.code)
			if req.Limits.TimeoutSeconds = 30; c.status == sandboxmcp.StatusTimedOut {
				req.Limits.TimeoutSeconds = 2
			}
			r := execute(t, e, req)
			if r.Status != c.status || r.ExitCode != c.exit || !r.StateLost {
				t.Errorf("%s, exit %d, lost %v, stderr %q; want %s, %d", r.Status, r.ExitCode, r.StateLost, r.Stderr, c.status, c.exit)
			}
			if r = execute(t, e, in(id, "print('x' in globals(), open('f').read())")); r.Stdout != "False kept\n" || r.StateLost {
				t.Errorf("the next run: got %q, %q, lost %v; want its files and no state", r.Stdout, r.Stderr, r.StateLost)
			}
		})
	}
}

// If an interpreter ends between two runs, the second reports that its state is lost. Without
// that, it would run in a new interpreter and find its variables missing.
func TestSessionEndsBetweenRuns(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{})
	execute(t, e, in(id, "x = 1\nimport ctypes, os, threading\nctypes.CDLL(None).prctl(15, b'ends-by-itself', 0, 0, 0)\nthreading.Timer(.5, lambda: (print('late', flush=True), os._exit(0))).start()"))
	eventually(t, "the interpreter has ended", func() bool { return len(named(t, "ends-by-itself")) == 0 })
	r := execute(t, e, in(id, "print('x' in globals())"))
	if !r.StateLost || r.Stdout != "late\nFalse\n" {
		t.Errorf("got %s (exit %d, %+v), lost %v, stdout %q, stderr %q; want a lost state, late and False", r.Status, r.ExitCode, r.Error, r.StateLost, r.Stdout, r.Stderr)
	}
}

// If an interpreter ends when it has got a cell and before it takes the cell up, the cell runs in a
// new interpreter. Without that, it would be reported as completed, and nothing of it would have run.
func TestSessionEndsBeforeTheCell(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{})
	execute(t, e, in(id, `x = 1
import ctypes, threading
def end():
    c = ctypes.PyDLL(None) # its calls keep the interpreter's lock: no other thread runs
    open("held", "w").close()
    c.alarm(2)
    c.sleep(30)
threading.Timer(.2, end).start()`))
	eventually(t, "the lock is held", func() bool {
		files, err := e.SessionFiles(t.Context(), sandboxmcp.Caller{}, id)
		return err == nil && slices.ContainsFunc(files, func(f sandboxmcp.SessionFile) bool { return f.Filename == "held" })
	})
	r := execute(t, e, in(id, "print('x' in globals())"))
	if r.Stdout != "False\n" || !r.StateLost {
		t.Errorf("got %s, lost %v, stdout %q, stderr %q; want a lost state and False", r.Status, r.StateLost, r.Stdout, r.Stderr)
	}
}

func TestSessionIsInterrupted(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{})
	execute(t, e, in(id, "x = 5"))
	for _, code := range []string{"import time; time.sleep(30)", "while True: pass", "import subprocess; subprocess.run(['sleep', '30'])"} {
		req := in(id, code)
		req.Limits.TimeoutSeconds = 0.3
		if r := execute(t, e, req); r.Status != sandboxmcp.StatusTimedOut || r.ExitCode != -1 || r.StateLost || !strings.HasSuffix(r.Stderr, "Execution timed out after 0.3s\n") {
			t.Errorf("%s: got %s, exit %d, lost %v, stderr %q; want timed_out, -1 and the state kept", code, r.Status, r.ExitCode, r.StateLost, r.Stderr)
		}
		if r := execute(t, e, in(id, "print(x)")); r.Stdout != "5\n" {
			t.Errorf("after %s: got %q, want 5", code, r.Stdout)
		}
	}
}

func TestSessionOfOtherLanguages(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Shell)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
	execute(t, e, in(id, "mkdir -p sub; cd sub; V=41; f() { echo $((V + 1)); }"))
	if r := execute(t, e, in(id, "f; basename \"$PWD\"")); r.Stdout != "42\nsub\n" || r.Language != sandboxmcp.Shell {
		t.Errorf("got %q %q %s, want 42, sub and shell", r.Stdout, r.Stderr, r.Language)
	}
	if r := execute(t, e, in(id, "exit 7")); r.ExitCode != 7 || r.Status != sandboxmcp.StatusFailed {
		t.Errorf("exit 7: got %s %d, want failed and 7", r.Status, r.ExitCode)
	}
	req := in(id, "sleep 30; echo not")
	req.Limits.TimeoutSeconds = 0.3
	if r := execute(t, e, req); r.Status != sandboxmcp.StatusTimedOut || r.StateLost || r.Stdout != "" {
		t.Errorf("timeout: got %s, lost %v, %q; want timed_out and the state kept", r.Status, r.StateLost, r.Stdout)
	}
	if r := execute(t, e, in(id, "f")); r.Stdout != "42\n" {
		t.Errorf("afterwards: got %q, want 42", r.Stdout)
	}
	other := in(id, "f")
	other.Limits.MaxRAMMB = 100
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, other); code(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("other memory: got %v, want invalid_argument", err)
	}
}

// The artifacts of a run in a session are the files that this run made or changed.
func TestSessionArtifacts(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{})
	if _, _, err := e.Upload(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: id, Name: "up.csv", Content: []byte("a,b\n1,2\n")}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ code, want string }{
		{"open('a.txt', 'w').write('1'); open('b.txt', 'w').write('1')", "a.txt b.txt"},
		{"open('a.txt').read(); open('up.csv').read()", ""},
		{"open('b.txt', 'w').write('2')", "b.txt"},
		{"import os; s = os.stat('b.txt'); open('b.txt', 'w').write('3'); os.utime('b.txt', ns=(s.st_atime_ns, s.st_mtime_ns))", "b.txt"},
		{"os.chmod('b.txt', 0o600)", ""},
		{"os.rename('a.txt', 'c.txt')", "c.txt"},
		{"open('up.csv', 'a').write('3,4\\n'); open('.hidden', 'w').write('x')", "up.csv"},
	} {
		if got := artifactNames(execute(t, e, in(id, c.code))); got != c.want {
			t.Errorf("%s: %q, want %q", c.code, got, c.want)
		}
	}
	files, err := e.SessionFiles(t.Context(), sandboxmcp.Caller{}, id)
	var names []string
	for _, f := range files {
		names = append(names, fmt.Sprintf("%s:%d", f.Filename, f.SizeBytes))
	}
	if got, want := strings.Join(names, " "), "b.txt:1 c.txt:1 up.csv:12"; err != nil || got != want {
		t.Errorf("SessionFiles: %q, %v; want %q", got, err, want)
	}
}

func TestSessionFiles(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	ctx := t.Context()
	id, path, err := e.Upload(ctx, sandboxmcp.Caller{}, sandboxmcp.Upload{Name: "d.bin", Content: []byte("data")})
	if err != nil || path != "/mnt/data/d.bin" {
		t.Fatal(id, path, err)
	}
	running, up := in(id, "import time; print('up', flush=True); time.sleep(1)"), newLive()
	running.Stdout = up
	wait := executeIn(ctx, t, e, running)
	up.await(t, "up", 0) // what follows happens during the run
	for _, c := range []struct {
		name      string
		overwrite bool
		want      sandboxmcp.Code
	}{
		{"d.bin", false, sandboxmcp.CodeFileExists},
		{"d.bin", true, ""},
		{"/mnt/data/sub/e.bin", false, ""},
		{"../x", false, sandboxmcp.CodeInvalidPath},
		{"/etc/passwd", false, sandboxmcp.CodeInvalidPath},
		{"d.bin/x", false, sandboxmcp.CodeInvalidPath},
		{"", false, sandboxmcp.CodeInvalidPath},
		{"sub", true, sandboxmcp.CodeInvalidPath},
	} {
		if _, _, err := e.Upload(ctx, sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: id, Name: c.name, Content: []byte("new"), Overwrite: c.overwrite}); code(err) != c.want {
			t.Errorf("Upload %q: %v, want %q", c.name, err, c.want)
		}
	}
	for _, c := range []struct {
		path, data string
		want       sandboxmcp.Code
	}{
		{"d.bin", "new", ""},
		{"/mnt/data//sub/./e.bin", "new", ""},
		{"missing", "", sandboxmcp.CodeNotFound},
		{"sub", "", sandboxmcp.CodeNotFound},
		{"/mnt/data/../x", "", sandboxmcp.CodeInvalidPath},
		{"//mnt/data/d.bin", "", sandboxmcp.CodeInvalidPath},
		{"/proc/1/environ", "", sandboxmcp.CodeInvalidPath},
	} {
		f, data, err := e.ReadFile(ctx, sandboxmcp.Caller{}, id, c.path, 100)
		if code(err) != c.want || string(data) != c.data {
			t.Errorf("ReadFile %q: %q, %v; want %q, %q", c.path, data, err, c.data, c.want)
		}
		if err == nil && (f.SizeBytes != 3 || len(f.SHA256) != 64) {
			t.Errorf("ReadFile %q: got %+v, want 3 bytes and a hash", c.path, f)
		}
	}
	if f, _, err := e.ReadFile(ctx, sandboxmcp.Caller{}, id, "d.bin", 2); code(err) != sandboxmcp.CodeArtifactTooLarge || f.SizeBytes != 3 {
		t.Errorf("above the limit: got %+v, %v; want artifact_too_large and the size", f, err)
	}
	if r, err := wait(); err != nil || r.Status != sandboxmcp.StatusCompleted || artifactNames(r) != "d.bin sub/e.bin" {
		t.Errorf("the run: got %s %q, %v; want completed with both files", r.Status, artifactNames(r), err)
	}
	if err := e.RemoveFile(ctx, sandboxmcp.Caller{Actor: "test"}, id, "d.bin"); err != nil {
		t.Error(err)
	}
	if _, _, err := e.ReadFile(ctx, sandboxmcp.Caller{}, id, "d.bin", 100); code(err) != sandboxmcp.CodeNotFound {
		t.Errorf("after it was removed: got %v, want not_found", err)
	}
	execute(t, e, in(id, "import os; os.symlink('/etc/passwd', 'link'); os.mkfifo('fifo')"))
	for _, name := range []string{"link", "fifo"} {
		if _, data, err := e.ReadFile(ctx, sandboxmcp.Caller{}, id, name, 100); code(err) != sandboxmcp.CodeNotFound {
			t.Errorf("ReadFile %s: got %q, %v; want not_found", name, data, err)
		}
	}
}

// A session of single runs: files stay, variables and processes do not.
func TestSessionOfFreshRuns(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	req := func(id sandboxmcp.SessionID, code string) sandboxmcp.Request {
		return sandboxmcp.Request{SessionID: id, Code: code, Session: &sandboxmcp.SessionSpec{Fresh: true}}
	}
	r := execute(t, e, req("", "x = 1\nimport subprocess\nsubprocess.Popen(['sleep', '60'], start_new_session=True)\nopen('f', 'w').write('kept')"))
	if r.SessionID == nil || r.Status != sandboxmcp.StatusCompleted {
		t.Fatalf("the first run: got %+v, want completed in a session", r)
	}
	id := *r.SessionID
	r = execute(t, e, req(id, "import os, glob\nprint('x' in globals(), open('f').read())\nprint(sum(b'sleep' in open(p, 'rb').read() for p in glob.glob('/proc/[0-9]*/cmdline')))"))
	if r.Stdout != "False kept\n0\n" || r.StateLost {
		t.Errorf("got %q %q, lost %v; want the file kept, and no state", r.Stdout, r.Stderr, r.StateLost)
	}
	if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{Actor: "test"}, id); err != nil {
		t.Error(err)
	}
	if _, err := e.SessionFiles(t.Context(), sandboxmcp.Caller{}, id); code(err) != sandboxmcp.CodeSessionNotFound {
		t.Errorf("after it was closed: got %v, want session_not_found", err)
	}
}

func TestSessionTerminatedWhileItRuns(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{})
	running, up := in(id, "import time; print('up', flush=True); time.sleep(60)"), newLive()
	running.Stdout = up
	wait := executeIn(t.Context(), t, e, running)
	up.await(t, "up", 0)
	if list, err := e.Sessions(t.Context(), sandboxmcp.Caller{Namespace: "default"}); err != nil || len(list) != 1 || list[0].Status != sandboxmcp.SessionActive {
		t.Errorf("sessions while it runs: got %+v, %v; want one that is busy", list, err)
	}
	if err := e.TerminateSession(t.Context(), sandboxmcp.Caller{Actor: "test"}, id); err != nil {
		t.Fatal(err)
	}
	r, err := wait()
	if err == nil && (r.Status != sandboxmcp.StatusCancelled || !strings.Contains(r.Note, "The session has ended, and its variables and files are gone.")) {
		t.Errorf("the run: got %s and the note %q, want cancelled, and that the session has ended", r.Status, r.Note)
	}
	if s := stats(e).Sessions; s != 0 {
		t.Errorf("sessions: got %d, want none", s)
	}
}

// TestSessionClosedUnlessBusy: closing a session never ends a run, whichever of the two begins
// first.
func TestSessionClosedUnlessBusy(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Shell)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
	req, out := in(id, "echo begun; until [ -e go ]; do sleep .01; done"), newLive()
	req.Stdout = out
	wait := executeIn(t.Context(), t, e, req)
	out.await(t, "begun", 0)
	if err := e.CloseSession(t.Context(), sandboxmcp.Caller{Actor: "test"}, id); code(err) != sandboxmcp.CodeSessionBusy {
		t.Errorf("CloseSession while it runs: got %v, want session_busy", err)
	}
	if _, _, err := e.Upload(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: id, Name: "go", Content: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if r, err := wait(); err != nil || !r.Success {
		t.Fatalf("the run: got %s, %v; want success", r.Status, err)
	}
	if err := e.CloseSession(t.Context(), sandboxmcp.Caller{Actor: "test"}, id); err != nil {
		t.Errorf("CloseSession afterwards: got %v, want nil", err)
	}
	if err := e.CloseSession(t.Context(), sandboxmcp.Caller{Actor: "test"}, id); code(err) != sandboxmcp.CodeSessionNotFound {
		t.Errorf("CloseSession once more: got %v, want session_not_found", err)
	}
	for range 30 {
		id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
		wait := executeIn(t.Context(), t, e, in(id, ":"))
		closed := e.CloseSession(t.Context(), sandboxmcp.Caller{Actor: "test"}, id)
		r, err := wait()
		ran := err == nil && r.Success && !r.StateLost
		if late := code(err) == sandboxmcp.CodeSessionNotFound || code(err) == sandboxmcp.CodeSessionExpired; !ran && !late || late && closed != nil || closed != nil && code(closed) != sandboxmcp.CodeSessionBusy {
			t.Fatalf("got run %s, %v and CloseSession %v; want the run done, or the session closed before it", r.Status, err, closed)
		}
		_ = e.TerminateSession(t.Context(), sandboxmcp.Caller{Actor: "test"}, id) // where it was busy
	}
}

func TestSessionBridge(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	ctx := t.Context()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	if _, err := e.Bridge(ctx, sandboxmcp.Caller{}, sandboxmcp.Bridge{Data: map[string]json.RawMessage{"kept": raw(`"for later"`)}}); err != nil {
		t.Fatal(err)
	}
	a, b := create(t, e, sandboxmcp.SessionSpec{}), create(t, e, sandboxmcp.SessionSpec{})
	execute(t, e, in(a, "import sandbox\nsandbox.bridge['t'] = {'rows': [1, 2], 'u': '\\u00fc'}"))
	got, err := e.Bridge(ctx, sandboxmcp.Caller{}, sandboxmcp.Bridge{From: a, To: b, Keys: []string{"t"}})
	if err != nil || !got.Bridged || len(got.Keys) != 1 || got.Bytes == 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if r := execute(t, e, in(b, "import sandbox, json\nprint(sandbox.bridge['t'], sandbox.bridge['kept'], json.load(open('/run/bridge/t.json'))['u'])")); r.Stdout != "{'rows': [1, 2], 'u': '\u00fc'} for later \u00fc\n" {
		t.Errorf("values handed over: got %q %q, want them in the cell and in its files", r.Stdout, r.Stderr)
	}
	if r := execute(t, e, in(b, "open('/run/bridge/t.json', 'w')")); r.Error == nil {
		t.Error("a write to /run/bridge: got no error, want a refusal")
	}
	for _, c := range []struct {
		b    sandboxmcp.Bridge
		want sandboxmcp.Code
	}{
		{sandboxmcp.Bridge{To: a}, sandboxmcp.CodeInvalidArgument},
		{sandboxmcp.Bridge{To: a, Data: map[string]json.RawMessage{"a": raw("1")}, Keys: []string{"a"}}, sandboxmcp.CodeInvalidArgument},
		{sandboxmcp.Bridge{To: "nobody", Data: map[string]json.RawMessage{"a": raw("1")}}, sandboxmcp.CodeSessionNotFound},
		{sandboxmcp.Bridge{To: a, Data: map[string]json.RawMessage{"../a": raw("1")}}, sandboxmcp.CodeInvalidArgument},
		{sandboxmcp.Bridge{To: a, Data: map[string]json.RawMessage{"a": raw("{")}}, sandboxmcp.CodeInvalidContent},
		{sandboxmcp.Bridge{From: a, To: b, Keys: []string{"missing"}}, sandboxmcp.CodeNotFound},
		{sandboxmcp.Bridge{To: a, Data: map[string]json.RawMessage{"a": raw(`"` + strings.Repeat("x", 5<<20) + `"`)}}, sandboxmcp.CodeFileTooLarge},
	} {
		if _, err := e.Bridge(ctx, sandboxmcp.Caller{}, c.b); code(err) != c.want {
			t.Errorf("%+v: %v, want %s", c.b.Keys, err, c.want)
		}
	}
}

func TestSessionExpires(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Shell)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell, TTL: 300 * time.Millisecond})
	eventually(t, "it has expired", func() bool { return stats(e).Sessions == 0 })
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, in(id, "echo x"))
	if code(err) != sandboxmcp.CodeSessionExpired {
		t.Errorf("the expired session: got %v, want session_expired", err)
	}
	if s, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{ID: id, Language: sandboxmcp.Shell}); err != nil || s.ID != id {
		t.Errorf("CreateSession of an expired id: got %v, want it", err)
	}
	if _, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{ID: id, Language: sandboxmcp.Shell}); code(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("CreateSession of a live id: got %v, want invalid_argument", err)
	}
}

// A request that is cancelled while it waits leaves no session that stays half made.
func TestSessionOfACancelledRequest(t *testing.T) {
	t.Parallel()
	e := openReal(t, func(c *engine.Config) { c.MaxConcurrent, c.MaxSessions = 1, 2 })
	needs(t, e, sandboxmcp.Shell)
	busy, free := context.WithCancel(t.Context())
	defer free()
	wait := background(t, func() (sandboxmcp.Result, error) {
		return e.Execute(busy, sandboxmcp.Caller{}, shell("sleep 600"))
	})
	eventually(t, "it runs", func() bool { return stats(e).Queue.Active == 1 })
	for _, id := range []sandboxmcp.SessionID{"a", "b"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		req := in(id, "echo x")
		req.Language = sandboxmcp.Shell
		if _, err := e.Execute(ctx, sandboxmcp.Caller{}, req); code(err) != sandboxmcp.CodeCancelled {
			t.Errorf("a run that is cancelled while it waits: got %v, want cancelled", err)
		}
		cancel()
	}
	free()
	if _, err := wait(); err != nil {
		t.Error(err)
	}
	for _, id := range []sandboxmcp.SessionID{"a", "b"} {
		create(t, e, sandboxmcp.SessionSpec{ID: id, Language: sandboxmcp.Shell})
	}
	req := in("c", "echo x")
	req.Language = "node"
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, req); code(err) != sandboxmcp.CodeMaxSessions {
		t.Errorf("the third session: got %v, want max_sessions", err)
	}
}

// A lost state that was not reported, because the caller had left, is reported to the next
// run.
func TestSessionLossIsSaidToSomebody(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{})
	execute(t, e, in(id, "x = 1"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	deaf := in(id, "import time\nwhile True:\n    try: print('runs'); time.sleep(30)\n    except BaseException: pass")
	deaf.Stdout = brokenWriter(cancel) // the caller leaves when it runs
	_, _ = e.Execute(ctx, sandboxmcp.Caller{}, deaf)
	if r := execute(t, e, in(id, "print('x' in globals())")); r.Stdout != "False\n" || !r.StateLost {
		t.Errorf("got %q, lost %v; want a lost state", r.Stdout, r.StateLost)
	}
	if r := execute(t, e, in(id, "1")); r.StateLost {
		t.Error("the run after: got a lost state again, want it said once")
	}
}

// Runs in a session leave no descriptor open in the server.
func TestSessionHoldsNoMore(t *testing.T) {
	e := openRealOn(t, process.Config{NoPool: true})
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{Fresh: true})
	for range 3 {
		execute(t, e, in(id, "open('f', 'w').write('x')"))
	}
	if _, err := e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: "nobodys"}); err == nil {
		t.Error("Lookup of an unknown request: got no error, want one")
	}
	before := backendtest.Count(t)
	for range 20 {
		execute(t, e, in(id, "open('f', 'w').write('x')"))
	}
	before.SameDescriptors(t)
}

// The names and limits of a session are checked before anything is made.
func TestSessionClamps(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	s, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{Limits: sandboxmcp.Limits{MaxProcesses: 1 << 20}})
	if err != nil || !slices.Equal(s.Clamped, []string{"max_processes"}) || s.Limits.MaxProcesses >= 1<<20 {
		t.Errorf("got %+v, %v; want max_processes lowered and named", s, err)
	}
}

func TestSessionRefusals(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	ctx := t.Context()
	for _, id := range []sandboxmcp.SessionID{"a b", "../a", "a\n", "é", "a.b", sandboxmcp.SessionID(strings.Repeat("x", 65))} {
		if _, err := e.CreateSession(ctx, sandboxmcp.Caller{}, sandboxmcp.SessionSpec{ID: id}); code(err) != sandboxmcp.CodeInvalidSessionID {
			t.Errorf("CreateSession %q: got %v, want invalid_session_id", id, err)
		}
		if _, err := e.SessionFiles(ctx, sandboxmcp.Caller{}, id); code(err) != sandboxmcp.CodeInvalidSessionID {
			t.Errorf("SessionFiles %q: got %v, want invalid_session_id", id, err)
		}
	}
	for _, spec := range []sandboxmcp.SessionSpec{{TTL: -1}, {Limits: sandboxmcp.Limits{MaxRAMMB: -1}}, {Backend: "none"}} {
		if _, err := e.CreateSession(ctx, sandboxmcp.Caller{}, spec); code(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("CreateSession %+v: got %v, want invalid_argument", spec, err)
		}
	}
	if err := e.TerminateSession(ctx, sandboxmcp.Caller{Actor: "test"}, "nobody"); code(err) != sandboxmcp.CodeSessionNotFound {
		t.Errorf("TerminateSession of an unknown id: got %v, want session_not_found", err)
	}
	const made = "sess_0123456789abcdef01234567" // the server treats an id of this form as a secret: a request with it needs no signature to read files
	_, _, upload := e.Upload(ctx, sandboxmcp.Caller{}, sandboxmcp.Upload{SessionID: made, Session: &sandboxmcp.SessionSpec{}, Name: "a", Content: []byte("x")})
	_, create := e.CreateSession(ctx, sandboxmcp.Caller{}, sandboxmcp.SessionSpec{ID: made})
	for what, err := range map[string]error{"Upload": upload, "CreateSession": create} {
		if code(err) != sandboxmcp.CodeSessionNotFound || sandboxmcp.AsError(err).Hint == "" {
			t.Errorf("%s with the form of an id that the engine makes: got %v, want session_not_found with a hint", what, err)
		}
	}
	if s := stats(e).Sessions; s != 0 {
		t.Errorf("sessions: got %d, want none", s)
	}
}

// TestCreateSessionIsLeft: a caller that leaves while the walls of its session are read gets
// its cancellation, and nothing of the session stays.
func TestCreateSessionIsLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &fake{onWalls: func() error {
		cancel()
		return ctx.Err()
	}}
	e := open(t, f)
	if _, err := e.CreateSession(ctx, sandboxmcp.Caller{}, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell}); code(err) != sandboxmcp.CodeCancelled {
		t.Errorf("got %v, want %s", err, sandboxmcp.CodeCancelled)
	}
	if _, open := f.starts(); open != 0 {
		t.Errorf("sandboxes: got %d open, want none", open)
	}
}
