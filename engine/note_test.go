package engine_test

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// wantNote fails unless the note of a result says all of want.
func wantNote(t *testing.T, res sandboxmcp.Result, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(res.Note, w) {
			t.Errorf("got the note %q of a run that has %s, want %q in it; stderr %.300q", res.Note, res.Status, w, res.Stderr)
		}
	}
}

// TestTooManyTasksAreTold: a run that reached the task limit is told so, however it ended.
func TestTooManyTasksAreTold(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Shell)
	few := sandboxmcp.Limits{MaxProcesses: 2, TimeoutSeconds: 60, MaxRAMMB: 512}
	want := "he limit of 32 processes and threads (16 for each of max_processes 2) was reached: "
	for _, r := range []sandboxmcp.Request{
		{Language: sandboxmcp.Shell, Code: "for i in $(seq 60); do sleep 1 & done 2>/dev/null; wait"},
		{Language: sandboxmcp.Python, Code: `import os, time
for i in range(60):
    try:
        if os.fork() == 0: time.sleep(1); os._exit(0)
    except OSError: break
os.wait()`},
	} {
		r.Limits = few
		res := execute(t, e, r)
		wantNote(t, res, "T"+want+"pass max_processes.")
	}
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell, Limits: few})
	wantNote(t, execute(t, e, in(id, "for i in $(seq 60); do sleep 1 & done 2>/dev/null; wait; exit 3")), "Probably t"+want+"start fewer at once, or call create_session with a higher limits.max_processes.")
	if res := execute(t, e, in(id, "true")); res.Note != "" {
		t.Errorf("the run after it: got the note %q, want none", res.Note)
	}
}

// TestManyFilesAreCounted: of many files that a run leaves, the note says how many are kept.
func TestManyFilesAreCounted(t *testing.T) {
	f := &fake{files: map[string]string{}}
	for i := range 300 {
		f.files[fmt.Sprintf("f%03d", i)] = "x"
	}
	res := execute(t, open(t, f), shell("x"))
	if len(res.Artifacts) != 200 || res.Note != "Kept 200 of 300 files: put them into one archive in /mnt/data." {
		t.Errorf("got %d files and %q, want 200 and how many there are", len(res.Artifacts), res.Note)
	}
}

// TestTheFirstOfManyFilesAreKept: of more files than are looked at, the first by name are kept, and
// every count is the same.
func TestTheFirstOfManyFilesAreKept(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	res := execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import random\nfor i in random.sample(range(10000), 10000): open(f'f{i:05}', 'w').write('x')"})
	if n := len(res.Artifacts); n != 200 || res.Artifacts[0].Name != "f00000" || res.Artifacts[199].Name != "f00199" {
		t.Errorf("got %d files, from %s to %s; want 200 from f00000 to f00199", n, res.Artifacts[0].Name, res.Artifacts[n-1].Name)
	}
	wantNote(t, res, "Kept 200 of at least 5,000 files")
	if res.Metadata["skipped_total"] != 4800 || res.Metadata["skipped_partial"] != true {
		t.Errorf("got skipped_total %v, skipped_partial %v; want 4800 and that there are more", res.Metadata["skipped_total"], res.Metadata["skipped_partial"])
	}
	res = execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import os\nfor d in range(20):\n os.mkdir(f'd{d:02}')\n for i in range(500): open(f'd{d:02}/{i}', 'w').write('x')"})
	wantNote(t, res, "Kept 200 of at least 4,980 files") // and 20 directories
	if res.Metadata["skipped_total"] != 4780 {
		t.Errorf("files in folders: got skipped_total %v, want 4780", res.Metadata["skipped_total"])
	}
}

// TestAListOfAFloodOfFilesSaysSo: files beyond those that are looked at are told.
func TestAListOfAFloodOfFilesSaysSo(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Python})
	for _, c := range []struct {
		n    int
		want bool
	}{{300, false}, {5500, true}} {
		execute(t, e, in(id, fmt.Sprintf("for i in range(%d): open(f'f{i:05}', 'w').write('x')", c.n)))
		list, err := e.SessionFiles(t.Context(), sandboxmcp.Caller{}, id)
		if err != nil || len(list) < 300 || list[len(list)-1].More != c.want {
			t.Errorf("%d files: got %d and %v; want that there are more: %v", c.n, len(list), err, c.want)
		}
	}
}

// TestFreshSessionsSayThatTheyForget: a variable of an earlier run, in a session that keeps only
// files; and a key of the vault in a run that gets none.
func TestFreshSessionsSayThatTheyForget(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	addSecret(t, e, "API_KEY", secret)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Python, Fresh: true})
	execute(t, e, in(id, "x = 1"))
	wantNote(t, execute(t, e, in(id, "print(x)")), "keep files, not variables")
	r := in(id, "import os; os.environ['API_KEY']")
	r.NoSecrets, r.Reader = true, sandboxmcp.ReaderPython
	wantNote(t, execute(t, e, r), "get no secrets", "API_KEY")
	r.NoSecrets = false
	if res := execute(t, e, r); res.Status != sandboxmcp.StatusCompleted || res.Note != "" {
		t.Errorf("with its secrets: got %s and %q, want it completed without a note", res.Status, res.Note)
	}
}

// TestARunInASessionHasItsLanguage: a request without a language has that of its session.
func TestARunInASessionHasItsLanguage(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Shell)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell})
	if res := execute(t, e, sandboxmcp.Request{SessionID: id, Code: "echo $0"}); res.Language != sandboxmcp.Shell || res.Status != sandboxmcp.StatusCompleted {
		t.Errorf("got %s and %s, want a run in shell", res.Language, res.Status)
	}
}

// TestPackageManagersDoNotPhoneHome: pip and npm do not look for a newer version of themselves,
// which would be told as an attempt of the program.
func TestPackageManagersDoNotPhoneHome(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Shell)
	res := execute(t, e, shell("echo $PIP_DISABLE_PIP_VERSION_CHECK $NPM_CONFIG_UPDATE_NOTIFIER"))
	if res.Stdout != "1 false\n" {
		t.Errorf("got %q, want both turned off", res.Stdout)
	}
}

// TestAnOpenHostThatDoesNotAnswerIsTold: the result names it with the reason, and a run that fails
// has a note.
func TestAnOpenHostThatDoesNotAnswerIsTold(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nowhere := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	f := connected(t)
	ask := f.program
	f.program = func(r *fakeRun) backend.Exit {
		ask(r)
		return backend.Exit{Code: 1}
	}
	e := open(t, f, func(c *engine.Config) {
		c.Network, c.Operator = true, domains(t, "api.site.test")
		c.Detours = map[sandboxmcp.Domain]netip.AddrPort{{Host: "api.site.test"}: nowhere}
	})
	res := execute(t, e, shell("api.site.test"))
	wantOut(t, res, "api.site.test 502")
	if n := res.Network.Failed; len(n) != 1 || n[0].Host != "api.site.test" || n[0].Port != 80 || n[0].Times != 1 || n[0].Reason != "it refused the connection" {
		t.Errorf("got %+v, want the host that refused", n)
	}
	wantNote(t, res, "No connection to api.site.test, which is open: it refused the connection.")
	asked, err := e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "more.site.test"})
	if err != nil || !strings.Contains(asked.HowToApprove, "more.site.test") {
		t.Errorf("got %q and %v, want the domain in it", asked.HowToApprove, err)
	}
}

// TestSessionsOlderThanASet: a session that was made before a package set was installed says so.
func TestSessionsOlderThanASet(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	python := pythonOf(t, e)
	state := filepath.Join(t.TempDir(), "state")
	e = openReal(t, at(state))
	old := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Python})
	wantNote(t, execute(t, e, in(old, "import pandas")), "only Python's own library")
	set := testkit.PackageSet{Tag: python.Tag(), Files: map[string]string{"pandas.py": ""}, Wheels: []testkit.Wheel{{Name: "pandas", Version: "2.2"}}}
	if _, err := set.Write(environment.Dir(state)); err != nil {
		t.Fatal(err)
	}
	wantNote(t, execute(t, e, in(old, "import pandas")), "not installed in this session", "older than the package set with pandas", "make a new session")
	if res := execute(t, e, in("young", "import pandas")); res.Status != sandboxmcp.StatusCompleted {
		t.Errorf("a new session: got %s, %q", res.Status, res.Stderr)
	}
}

// TestUnsetVariables: a program that needs a variable which nobody has set.
func TestUnsetVariables(t *testing.T) {
	t.Parallel()
	e := openReal(t, func(c *engine.Config) {
		c.Invocation = sandboxmcp.Invocation{Program: "/opt/my/sandboxmcp"}
	})
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node)
	addSecret(t, e, "API_KEY", secret)
	for language, code := range map[sandboxmcp.Language]string{
		sandboxmcp.Python: "import os\nos.environ['API_TOKEN']", sandboxmcp.Node: "process.env.API_TOKEN.length", sandboxmcp.Shell: "set -u\necho $API_TOKEN",
	} {
		res := execute(t, e, sandboxmcp.Request{Language: language, Code: code})
		wantNote(t, res, "API_TOKEN is not in the environment, and the vault has no key of that name", "`/opt/my/sandboxmcp vault add API_TOKEN`")
		id := create(t, e, sandboxmcp.SessionSpec{Language: language})
		if language == sandboxmcp.Python {
			wantNote(t, execute(t, e, in(id, code)), "API_TOKEN is not in the environment")
		}
		res = execute(t, e, sandboxmcp.Request{Language: language, Code: strings.ReplaceAll(code, "API_TOKEN", "API_KEY")})
		if res.Status != sandboxmcp.StatusCompleted || res.Note != "" {
			t.Errorf("%s with a key of the vault: got %s and the note %q", language, res.Status, res.Note)
		}
	}
}

// TestWhatCannotBeParsedIsTold: with its line, and with the language that it seems to be of.
func TestWhatCannotBeParsedIsTold(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node)
	addSecret(t, e, "API_KEY", secret)
	for _, c := range []struct {
		language   sandboxmcp.Language
		code, want string
		status     sandboxmcp.Status
	}{
		{sandboxmcp.Python, "x = 1\nprint(", `Line 2, column 6: "print("`, sandboxmcp.StatusRejected},
		{sandboxmcp.Python, "const a = 1;\nconsole.log(a)", "This looks like JavaScript: pass language node.", sandboxmcp.StatusRejected},
		{sandboxmcp.Python, "#!/bin/bash\nls -la | wc -l", "This looks like shell: pass language shell.", sandboxmcp.StatusFailed},
		{sandboxmcp.Python, "%pip install x", "Lines that begin with % or ! work in sessions only", sandboxmcp.StatusRejected},
		{sandboxmcp.Python, "key = '" + secret + "' +", `Line 1`, sandboxmcp.StatusRejected},
		{sandboxmcp.Node, "import json\nfor i in range(3):\n    print(i)", "This looks like Python: pass language python.", sandboxmcp.StatusFailed},
		{sandboxmcp.Shell, "import json\nprint(1)", "This looks like Python: pass language python.", sandboxmcp.StatusFailed},
	} {
		res := execute(t, e, sandboxmcp.Request{Language: c.language, Code: c.code, Display: sandboxmcp.DisplayStdout})
		if res.Status != c.status {
			t.Errorf("%s %q: got %s, want %s", c.language, c.code, res.Status, c.status)
		}
		wantNote(t, res, c.want)
		if strings.Contains(res.Note, secret) {
			t.Errorf("got the note %q, want no secret in it", res.Note)
		}
	}
}

// TestAddedImportsAreTold: a program that works only because of an import that was added is told so.
func TestAddedImportsAreTold(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	res := execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: "print(json.dumps({'a': math.floor(1.5)}))", Display: sandboxmcp.DisplayStdout})
	wantOut(t, res, `{"a": 1}`)
	wantNote(t, res, "Added: import json, import math. Put them into the program.")
	if res = execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import json\nprint(json.dumps(1))", Display: sandboxmcp.DisplayStdout}); res.Note != "" {
		t.Errorf("a program with its import: got the note %q, want none", res.Note)
	}
}
