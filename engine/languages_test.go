package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// inLanguage is a request of a session in a language.
func inLanguage(id sandboxmcp.SessionID, l sandboxmcp.Language, code string) sandboxmcp.Request {
	r := in(id, code)
	r.Language = l
	return r
}

// said is what a cell has printed, and the text of its value.
func said(r sandboxmcp.Result) string {
	text := r.Stdout + r.Stderr
	for _, v := range r.Results {
		if plain, ok := v["text/plain"].(string); ok {
			text += plain
		}
	}
	return strings.TrimSpace(text)
}

// interpretersOf returns the languages whose interpreter runs in a session.
func interpretersOf(t *testing.T, e *engine.Engine, id sandboxmcp.SessionID) []sandboxmcp.Language {
	t.Helper()
	all, err := e.Sessions(t.Context(), sandboxmcp.Caller{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.ID == id {
			return s.Interpreters
		}
	}
	t.Fatalf("session %s is not listed", id)
	return nil
}

// TestSessionHasOneImage: a sandbox is made from the image of its interpreter. A language that is in
// another image cannot be used in the session.
func TestSessionHasOneImage(t *testing.T) {
	f := &fake{images: map[sandboxmcp.Language]string{sandboxmcp.Shell: "s:1", sandboxmcp.Python: "p:1"}}
	e := open(t, f)
	execute(t, e, shell("x"))
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
	for i := range 2 {
		if got := f.specs[i].Image; got != "s:1" {
			t.Errorf("sandbox %d: got image %q, want s:1", i, got)
		}
	}
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, inLanguage(id, sandboxmcp.Python, "1"))
	if f := sandboxmcp.AsError(err); err == nil || f.Code != sandboxmcp.CodeRuntimeUnavailable || !strings.Contains(f.Message, "s:1") {
		t.Errorf("got %v, want runtime_unavailable and the image of the session", err)
	}
}

// TestSessionTakesEveryLanguage: runs of all languages work on the same files, and each has an
// interpreter that keeps its state. They are started when they are first used.
func TestSessionTakesEveryLanguage(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Languages()...)
	for _, own := range sandboxmcp.Languages() {
		id := create(t, e, sandboxmcp.SessionSpec{Language: own})
		if got := interpretersOf(t, e, id); len(got) > 0 {
			t.Errorf("new session: got interpreters %v, want none", got)
		}
		var known []sandboxmcp.Language
		for _, c := range []struct {
			language   sandboxmcp.Language
			code, want string
		}{
			{"python", "x = 41; _ = open('a.txt', 'w').write('from python')", ""},
			{"shell", "cat a.txt; cd /tmp; y=shell", "from python"},
			{"node", "let z = require('fs').readFileSync('a.txt', 'utf8'); require('fs').writeFileSync('b.txt', 'from node'); z.length", "11"},
			{"python", "print(x + 1, open('b.txt').read())", "42 from node"},
			{"bash", "echo $PWD $y", "/tmp shell"},
			{"JavaScript", "z + 1", "'from python1'"},
			{"", map[sandboxmcp.Language]string{"python": "x", "node": "41", "shell": "echo 41"}[own], "41"},
			{"python", "import os\nos.getcwd()", "'/mnt/data'"},
		} {
			r := execute(t, e, inLanguage(id, c.language, c.code))
			if got := said(r); got != c.want || r.StateLost {
				t.Errorf("session of %s, %s, %q: got %q, state lost %v, want %q", own, c.language, c.code, got, r.StateLost, c.want)
			}
			first := r.Language != own && !slices.Contains(known, r.Language) // the session's first run in another language than its own
			if got := strings.Contains(r.Note, "First run in "+string(r.Language)+": its variables are its own"); got != first {
				t.Errorf("session of %s, %s, %q: got the note %q, want that variables are not shared: %v", own, c.language, c.code, r.Note, first)
			}
			known = append(known, r.Language)
		}
		if d := cmp.Diff(sandboxmcp.Languages(), interpretersOf(t, e, id)); d != "" {
			t.Errorf("interpreters (-want +got):\n%s", d)
		}
	}
}

// TestInterpretersOfASessionEndAlone: an interpreter that is interrupted, killed or ends by
// itself takes neither the state nor the processes of the others with it. The result says whose
// state was lost.
func TestInterpretersOfASessionEndAlone(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Languages()...)
	slow := func(id sandboxmcp.SessionID, l sandboxmcp.Language, code string) sandboxmcp.Result {
		r := inLanguage(id, l, code)
		r.Limits.TimeoutSeconds = 1
		return execute(t, e, r)
	}
	id := create(t, e, sandboxmcp.SessionSpec{})
	execute(t, e, in(id, "import os, signal, time\nx = 1"))
	execute(t, e, inLanguage(id, "node", "let y = 2"))
	execute(t, e, inLanguage(id, "shell", "z=3; sleep 300 & pid=$!"))
	if r := slow(id, "python", "time.sleep(30)"); r.Status != sandboxmcp.StatusTimedOut || r.StateLost {
		t.Errorf("interrupted: got %s, state lost %v, want timed_out and the state kept", r.Status, r.StateLost)
	}
	r := slow(id, "node", "for (;;) { try { for (;;) require('child_process').execSync('sleep 5; true') } catch {} }")
	if r.Status != sandboxmcp.StatusTimedOut || r.StateLost && !slices.Equal(r.StateLostIn, []sandboxmcp.Language{"node"}) {
		t.Errorf("node: got %s, state lost %v in %v, want timed_out and at most node's state lost", r.Status, r.StateLost, r.StateLostIn)
	}
	stubborn := "import subprocess\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nsubprocess.Popen(['setsid', 'sleep', '299'])\nwhile True: pass"
	if r = slow(id, "python", stubborn); r.Status != sandboxmcp.StatusTimedOut || !r.StateLost || !slices.Equal(r.StateLostIn, []sandboxmcp.Language{"python"}) {
		t.Errorf("stubborn: got %s, state lost %v in %v, want timed_out and python's state lost", r.Status, r.StateLost, r.StateLostIn)
	}
	if got := said(execute(t, e, inLanguage(id, "shell", "echo $z; kill -0 $pid && echo runs; pgrep -f 'sleep 29[9]' || echo gone"))); got != "3\nruns\ngone" {
		t.Errorf("shell after the end of python: got %q, want its variable, its background process, and none of python's", got)
	}
	if r = execute(t, e, in(id, "'x' in globals()")); said(r) != "False" || r.StateLost {
		t.Errorf("python after its end: got %q, state lost %v, want a new interpreter, and that it is not said twice", said(r), r.StateLost)
	}
	execute(t, e, in(id, "import os\npid = os.getpid()\n_ = open('pid', 'w').write(str(pid))"))
	if r = execute(t, e, inLanguage(id, "shell", "kill -9 $(cat pid); sleep 0.2; echo $z")); said(r) != "3" || !slices.Equal(r.StateLostIn, []sandboxmcp.Language{"python"}) {
		t.Errorf("python killed by shell: got %q, state lost in %v, want 3 and python", said(r), r.StateLostIn)
	}
	if r = execute(t, e, in(id, "'pid' in globals()")); said(r) != "False" {
		t.Errorf("python after the kill: got %q, want a new interpreter", said(r))
	}
}

// TestLimitsOfASessionHoldForAllLanguages: what the interpreters hold counts together. Without a
// cgroup the memory is counted now and then, so the second interpreter holds it for a while.
func TestLimitsOfASessionHoldForAllLanguages(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Shell)
	id := create(t, e, sandboxmcp.SessionSpec{Limits: sandboxmcp.Limits{MaxRAMMB: 128}})
	execute(t, e, in(id, "a = bytearray(80 << 20)"))
	r := execute(t, e, inLanguage(id, "shell", `python3 -c 'import time; a = bytearray(80 << 20); time.sleep(5); print("held")'`))
	if r.Status == sandboxmcp.StatusCompleted && strings.Contains(r.Stdout, "held") && !r.StateLost {
		t.Errorf("got %+v, want that 160 MiB do not fit into 128 MiB", r)
	}
}

// TestPythonOfShellCode: python and python3 in shell code are the interpreter that runs Python
// code, in single runs and in sessions of every language.
func TestPythonOfShellCode(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Shell)
	const which = "import os, sys; print(os.path.realpath(sys.executable), sys.version.split()[0])"
	want := execute(t, e, sandboxmcp.Request{Code: which}).Stdout
	const script = "for p in python python3; do $p -c '" + which + "'; done"
	if got := execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Shell, Code: script}).Stdout; got != want+want {
		t.Errorf("single run: got %q, want %q twice", got, want)
	}
	for _, own := range []sandboxmcp.Language{sandboxmcp.Python, sandboxmcp.Shell} {
		id := create(t, e, sandboxmcp.SessionSpec{Language: own})
		if got := execute(t, e, inLanguage(id, sandboxmcp.Shell, script)).Stdout; got != want+want {
			t.Errorf("session of %s: got %q, want %q twice", own, got, want)
		}
	}
	id := create(t, e, sandboxmcp.SessionSpec{})
	if got := execute(t, e, in(id, "!"+script)).Stdout; got != want+want {
		t.Errorf("shell line of a cell: got %q, want %q twice", got, want)
	}
}
