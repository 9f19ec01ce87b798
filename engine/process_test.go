package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// Tests with the real walls. They need a machine that can build them.

// openReal opens an engine over the process backend, or skips.
func openReal(t *testing.T, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	return openRealOn(t, process.Config{}, change...)
}

func openRealOn(t *testing.T, c process.Config, change ...func(*engine.Config)) *engine.Engine {
	t.Helper()
	b := process.New(c)
	if c := b.Capabilities(t.Context()); !c.Available {
		_ = b.Close(t.Context())
		testkit.Sandbox(t, false, c.Reason)
	}
	cfg := engine.Config{StateDir: filepath.Join(t.TempDir(), "state"), Backends: []backend.Backend{b}}
	for _, c := range change {
		c(&cfg)
	}
	e, err := engine.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
	})
	return e
}

// needs skips unless the machine has interpreters of the languages.
func needs(t *testing.T, e *engine.Engine, langs ...sandboxmcp.Language) {
	t.Helper()
	for _, r := range languages(t, e) {
		if slices.Contains(langs, r.Language) {
			word := map[sandboxmcp.Language]string{"python": "python", "node": "node", "shell": "bash"}[r.Language]
			testkit.Need(t, word, r.Available, r.Hint)
		}
	}
}

func TestRealLanguages(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	for name, c := range map[string]struct {
		lang sandboxmcp.Language
		code string
		want string
	}{
		"Python":      {"python", "import os, sys\nprint(6*7, os.getcwd(), sys.stdin.read())", "42 /mnt/data in\n"},
		"Node":        {"node", "console.log(6*7, process.cwd(), require('fs').readFileSync(0, 'utf8'))", "42 /mnt/data in\n"},
		"Shell":       {"shell", "echo $((6*7)) $PWD $(cat)", "42 /mnt/data in\n"},
		"Environment": {"shell", "echo $KEY $HOME $SANDBOX_OUTPUT_DIR", "value /tmp /mnt/data\n"},
		"Output":      {"shell", "printf 'a\\377b\\000'; echo err >&2", "a\ufffdb\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			needs(t, e, c.lang)
			res := execute(t, e, sandboxmcp.Request{Code: c.code, Language: c.lang, Stdin: []byte("in"), Env: map[string]string{"KEY": "value"}})
			if res.Stdout != c.want || !res.Success || res.Language != c.lang {
				t.Errorf("got %s, stdout %q, stderr %q; want stdout %q", res.Status, res.Stdout, res.Stderr, c.want)
			}
			if res.Isolation == nil || !res.Isolation.Tier.AtLeast(sandboxmcp.TierL2) || len(res.Isolation.Walls) < 5 {
				t.Errorf("got isolation %+v", res.Isolation)
			}
		})
	}
}

// TestRealMissingImport: a program that never imports a well-known module gets it, and the result says so.
func TestRealMissingImport(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	session, err := e.CreateSession(t.Context(), sandboxmcp.Caller{}, sandboxmcp.SessionSpec{})
	if err != nil {
		t.Fatal(err)
	}
	code := "print(json.dumps({'a': 1}))"
	for name, r := range map[string]sandboxmcp.Request{
		"plain":    {Code: code},
		"as REPL":  {Code: code, Display: sandboxmcp.DisplayStdout},
		"own line": {Code: code + "\njson.dumps(2)", Display: sandboxmcp.DisplayResults},
		"session":  {Code: code, SessionID: session.ID},
	} {
		res := execute(t, e, r)
		v, _ := res.Metadata["validation"].(map[string]any)
		fixes, _ := v["fixes_applied"].([]string)
		if !res.Success || res.Stdout != "{\"a\": 1}\n" || v["verdict"] != "fixed" || !slices.Equal(fixes, []string{"added import json"}) {
			t.Errorf("%s: got %s, %q, %q, metadata %v; want the output and the added import", name, res.Status, res.Stdout, res.Stderr, res.Metadata)
		}
	}
	for name, r := range map[string]sandboxmcp.Request{
		"five tools": {Code: code, Display: sandboxmcp.DisplayFigures},
		"tested":     {Code: "try:\n    json\nexcept NameError:\n    raise"},
	} {
		if res := execute(t, e, r); res.Success || !strings.HasSuffix(res.Stderr, "NameError: name 'json' is not defined\n") || res.Metadata["validation"] != nil {
			t.Errorf("%s: got %s, %q, metadata %v; want the NameError", name, res.Status, res.Stderr, res.Metadata)
		}
	}
}

// TestRealError: the result has the exception of a program, with the program's own lines.
func TestRealError(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Node)
	res := execute(t, e, sandboxmcp.Request{Code: "x = 1\ndef f():\n    raise ValueError('boom')\nf()\n"})
	if res.Status != sandboxmcp.StatusFailed || res.ExitCode != 1 || !strings.HasSuffix(res.Stderr, "ValueError: boom\n") || !strings.Contains(res.Stderr, "line 3") {
		t.Errorf("got %s, exit %d, stderr %q", res.Status, res.ExitCode, res.Stderr)
	}
	if res.Error == nil || res.Error.Name != "ValueError" || res.Error.Value != "boom" || len(res.Error.Traceback) == 0 {
		t.Errorf("got error %+v", res.Error)
	}
	if res = execute(t, e, sandboxmcp.Request{Code: "import sys; sys.exit(3)"}); res.ExitCode != 3 || res.Error != nil {
		t.Errorf("sys.exit(3): got %d, %+v; want 3 and no error", res.ExitCode, res.Error)
	}
	res = execute(t, e, sandboxmcp.Request{Code: "print(", Display: sandboxmcp.DisplayStdout})
	if res.Status != sandboxmcp.StatusRejected || !strings.HasPrefix(res.Stderr, "Validation failed: [REJECT] 1 issue(s)\n  L1: SyntaxError: ") {
		t.Errorf("got %s, stderr %q", res.Status, res.Stderr)
	}
	if res = execute(t, e, sandboxmcp.Request{Code: "1+1", Display: sandboxmcp.DisplayStdout}); res.Stdout != "2\n" {
		t.Errorf("got stdout %q, want 2", res.Stdout)
	}
	res = execute(t, e, sandboxmcp.Request{Code: "throw new TypeError('boom')", Language: sandboxmcp.Node})
	if res.ExitCode != 1 || !strings.Contains(res.Stderr, "boom") {
		t.Errorf("a failing program of Node: got %d, stderr %q; want 1 and its error", res.ExitCode, res.Stderr)
	}
	t.Logf("node's error{} is %+v", res.Error)
}

// TestRealOutcomes: ends of programs that look alike get different statuses.
func TestRealOutcomes(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	second := sandboxmcp.Limits{TimeoutSeconds: 1}
	for name, c := range map[string]struct {
		req    sandboxmcp.Request
		status sandboxmcp.Status
		exit   int
		stdout string
		stderr string
	}{
		"Exit124":     {shell("exit 124"), "failed", 124, "", ""},
		"Exit137":     {shell("exit 137"), "failed", 137, "", ""},
		"KillsItself": {shell("kill -9 $$"), "signalled", 137, "", ""},
		"Segfault":    {shell("kill -SEGV $$"), "signalled", 139, "", ""},
		"Sleeps":      {sandboxmcp.Request{Code: "printf half; printf e >&2; sleep 150", Language: "shell", Limits: second}, "timed_out", -1, "half", "e\nExecution timed out after 1s\n"},
		"Computes":    {sandboxmcp.Request{Code: "print('a', flush=True)\nwhile True: pass", Limits: second}, "timed_out", -1, "a\n", "Execution timed out after 1s\n"},
		"Orphans":     {sandboxmcp.Request{Code: "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' &) ; echo x; sleep 150", Language: "shell", Limits: second}, "timed_out", -1, "x\n", "Execution timed out after 1s\n"},
		"Daemon":      {shell("setsid sleep 60 & echo done"), "completed", 0, "done\n", ""},
		"Memory":      {sandboxmcp.Request{Code: "x = [b'x'*(1<<20) for _ in range(500)]\nprint(len(x))", Limits: sandboxmcp.Limits{MaxRAMMB: 64}}, "out_of_memory", 137, "", ""},
		"FileMemory":  {sandboxmcp.Request{Code: "f=open('big','wb')\ntry:\n  for _ in range(500): f.write(b'x'*(1<<20)); f.flush()\nexcept OSError as e: print(e.errno)", Limits: sandboxmcp.Limits{MaxRAMMB: 64}}, "completed", 0, "28\n", ""},
		"Flood":       {sandboxmcp.Request{Code: "while True: print('x'*1000)", Limits: sandboxmcp.Limits{MaxOutputBytes: 2000, TimeoutSeconds: 20}}, "output_limit", -1, strings.Repeat("x", 1000) + "\n" + strings.Repeat("x", 999), ""},
		"ShortFlood":  {sandboxmcp.Request{Code: "print('x'*40000, end='')", Limits: sandboxmcp.Limits{MaxOutputBytes: 100}}, "output_limit", -1, strings.Repeat("x", 100), ""},
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			res := execute(t, e, c.req)
			if res.Status != c.status || res.ExitCode != c.exit || res.Stdout != c.stdout || res.Stderr != c.stderr {
				t.Errorf("got %s, exit %d, stdout %.80q, stderr %.200q; want %s, %d, %.80q, %q", res.Status, res.ExitCode, res.Stdout, res.Stderr, c.status, c.exit, c.stdout, c.stderr)
			}
			if c.status == "timed_out" && (res.DurationMS < 1000 || time.Since(begin) > time.Minute) {
				t.Errorf("it took %v ms, %v with everything; want at least 1000 ms, and not the 150 s of the program", res.DurationMS, time.Since(begin))
			}
			if res.Receipt == nil {
				t.Error("got no receipt, want one")
			}
		})
	}
}

// TestRealCancel: when the caller leaves, the whole process tree ends, and not only when its programs do.
func TestRealCancel(t *testing.T) {
	e := openReal(t)
	began := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	marker := "777" + strconv.Itoa(os.Getpid())
	r := shell("trap '' TERM INT; (setsid sleep " + marker + " &); sleep 0.1; echo began; sleep " + marker)
	r.Stdout = brokenWriter(func() {
		select {
		case <-began:
		default:
			close(began)
		}
	})
	wait := executeIn(ctx, t, e, r)
	select {
	case <-began:
	case <-timeUp(t, time.Minute):
		t.Fatal("got no output within a minute, want a program that runs")
	}
	if len(backendtest.Alive("sleep\x00"+marker)) == 0 {
		t.Fatal("got none of its processes, want them seen, or the test shows nothing")
	}
	begin := time.Now()
	cancel()
	res, err := wait()
	took := time.Since(begin)
	if err != nil || res.Status != sandboxmcp.StatusCancelled || res.ExitCode != -1 || res.Stdout != "began\n" {
		t.Errorf("got %+v, %v", res, err)
	}
	if left := backendtest.Alive("sleep\x00" + marker); took > time.Minute || len(left) != 0 {
		t.Errorf("after %v: got processes %v, want none", took, left)
	}
}

// TestRealTasks: a program that forks without end gets as many tasks as it may have.
func TestRealTasks(t *testing.T) {
	t.Parallel()
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	code := testkit.Hostile(t, "forks-400-times.py")
	res := execute(t, e, sandboxmcp.Request{Code: code, Limits: sandboxmcp.Limits{MaxProcesses: 2, TimeoutSeconds: 20}})
	out := strings.Fields(res.Stdout)
	if len(out) != 3 || out[0] != "refused" || out[1] != "11" {
		t.Fatalf("got %s, stdout %q, stderr %q; want that a fork is refused", res.Status, res.Stdout, res.Stderr)
	}
	if n, err := strconv.Atoi(out[2]); err != nil || n < 16 || n > 32 {
		t.Errorf("it got %s children, want about 32 tasks", out[2])
	}
	if res.Usage.MaxTasks != 32 || res.Usage.PeakTasks > 33 {
		t.Errorf("got usage %+v", res.Usage)
	}
}

// TestRealArtifacts: plain files come back signed. Links, devices and other traps are skipped.
func TestRealArtifacts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	e := openReal(t, at(dir))
	needs(t, e, sandboxmcp.Python)
	code := testkit.Hostile(t, "plants-artifacts.py")
	res := execute(t, e, sandboxmcp.Request{Code: code})
	if res.ExitCode != 5 {
		t.Fatalf("got %s, exit %d, stderr %q", res.Status, res.ExitCode, res.Stderr)
	}
	got := map[string]string{}
	public, err := sign.PublicKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range res.Artifacts {
		got[a.Name] = string(a.ContentB64)
		st := sign.ArtifactStatement{Namespace: res.Namespace, RequestID: res.RequestID, Path: a.Path, SizeBytes: a.SizeBytes, SHA256: a.SHA256, CodeSHA256: hash(code), CreatedAt: a.CreatedAt}
		if err := sign.VerifyArtifact(st, a.Signature, public); err != nil {
			t.Errorf("signature of %s: got %v, want nil", a.Name, err)
		}
	}
	// Whether files without permission bits can be read depends on who holds the directory.
	delete(got, "closed/c")
	delete(got, "a.txt")
	if diff := cmp.Diff(map[string]string{"sub/deep/b c.txt": "B"}, got); diff != "" {
		t.Errorf("artifacts (-want +got):\n%s", diff)
	}
	skipped := asJSON(t, res.Metadata["skipped"])
	for _, name := range []string{"link", "slash", "fifo", "one", "two", "giant", "bad", "new"} {
		if !strings.Contains(skipped, `"name": "`+name) {
			t.Errorf("%s: got skipped %s, want it named", name, skipped)
		}
	}
	if strings.Contains(skipped, "hidden") {
		t.Errorf("skipped: got %s, want no hidden file named", skipped)
	}
	if _, err := sign.Verify(*res.Receipt, public); err != nil {
		t.Error(err)
	}
	// Nothing is kept from one run to the next.
	if res = execute(t, e, shell("ls -A /mnt/data /tmp")); len(res.Artifacts) != 0 || strings.Contains(res.Stdout, "a.txt") {
		t.Errorf("the next run: got %q, want no file of the run before", res.Stdout)
	}
}

// many runs n requests at once and checks each answer.
func many(t *testing.T, e *engine.Engine, n int) {
	t.Helper()
	var waits []func() (sandboxmcp.Result, error)
	for i := range n {
		r := shell(fmt.Sprintf("read x; echo $((x*%d)); echo %d >f; exit %d", i, i, i%3))
		r.Stdin = []byte("7\n")
		waits = append(waits, executeIn(t.Context(), t, e, r))
	}
	ids := map[sandboxmcp.RequestID]bool{}
	for i, wait := range waits {
		res, err := wait()
		if err != nil {
			t.Errorf("request %d: got %v, want nil", i, err)
			continue
		}
		ids[res.RequestID] = true
		if res.Stdout != fmt.Sprintln(7*i) || res.ExitCode != i%3 || len(res.Artifacts) != 1 || string(res.Artifacts[0].ContentB64) != fmt.Sprintln(i) {
			t.Errorf("request %d: got %s, exit %d, stdout %q, stderr %q, %d artifacts", i, res.Status, res.ExitCode, res.Stdout, res.Stderr, len(res.Artifacts))
		}
	}
	if len(ids) != n && !t.Failed() {
		t.Errorf("%d requests: got %d ids, want one for each", n, len(ids))
	}
}

// TestRealSixtyFour: each of 64 requests at the same time gets its own right answer.
func TestRealSixtyFour(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Shell)
	many(t, e, 64)
	if s := stats(e); s.Queue.Active != 0 || s.Queue.Queued != 0 || s.Queue.TotalProcessed != 64 {
		t.Errorf("queue: got %+v, want it empty and 64 processed", s.Queue)
	}
}

// TestRealTwoEngines: two servers on one state directory do not disturb each other.
func TestRealTwoEngines(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	a, b := openReal(t, at(dir)), openReal(t, at(dir))
	needs(t, a, sandboxmcp.Shell)
	wait := background(t, func() (int, error) { many(t, a, 8); return 0, nil })
	many(t, b, 8)
	_, _ = wait()
	list := slices.DeleteFunc(rows(t, dir, "default"), func(r sandboxmcp.AuditEntry) bool { return r.Action != "execute" })
	if len(list) != 32 {
		t.Errorf("the audit holds %d entries of runs, want 32", len(list))
	}
	for _, r := range list {
		if r.Phase == sandboxmcp.PhaseOutcome {
			if got := lookup(t, a, sandboxmcp.Lookup{RequestID: r.RequestID}); got.Stdout == "" {
				t.Errorf("the first engine: got no output of %s, want it", r.RequestID)
			}
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	many(t, b, 4)
}

// TestRealLeak: after 200 runs the process and the machine hold what they held after 50.
func TestRealLeak(t *testing.T) {
	var b backend.Backend
	e := openReal(t, func(c *engine.Config) { b = c.Backends[0] })
	needs(t, e, sandboxmcp.Shell)
	run := func(n int) {
		for i := range n {
			r := shell("echo x >f; sleep 100 & :")
			switch i % 25 {
			case 0:
				r = sandboxmcp.Request{Code: "sleep 9", Language: "shell", Limits: sandboxmcp.Limits{TimeoutSeconds: 0.02}}
			case 1:
				r = sandboxmcp.Request{Code: "yes", Language: "shell", Limits: sandboxmcp.Limits{MaxOutputBytes: 100}}
			case 2:
				r = sandboxmcp.Request{Code: "x", Language: "shell", FileName: "a/b"} // refused when its sandbox is there
			}
			_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, r)
			if (err != nil) != (r.FileName != "") {
				t.Fatalf("run %d: got %v, want an error only for a bad file name", i, err)
			}
		}
	}
	if _, err := e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: "nobodys"}); err == nil { // each connection to the database has been made
		t.Error("Lookup of an unknown request: got no error, want one")
	}
	run(50)
	before := backendtest.CountBeside(t, b)
	eventually(t, "two equal counts: the last sandbox is gone", func() bool {
		last := before
		before = backendtest.CountBeside(t, b)
		return slices.Equal(last.Processes, before.Processes) && slices.Equal(last.Groups, before.Groups) && last.Mounts == before.Mounts && last.Descriptors == before.Descriptors
	})
	run(150)
	before.Same(t)
	after := backendtest.CountBeside(t, b)
	t.Logf("resident memory after 50 runs %.1f MiB, after 200 %.1f MiB", float64(before.RSS)/(1<<20), float64(after.RSS)/(1<<20))
	if grown := after.RSS - before.RSS; grown > 12<<20 {
		t.Errorf("resident memory: got %d bytes more, want less than 12 MiB", grown)
	}
}

// TestRealBuilderDies: a builder that was killed is replaced, and requests succeed.
func TestRealBuilderDies(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	before := children()
	e := openReal(t)
	if res := execute(t, e, shell("echo a")); res.Stdout != "a\n" {
		t.Fatalf("got %+v", res)
	}
	var killed []int
	for _, pid := range children() {
		if !slices.Contains(before, pid) { // this engine's own
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("kill %d: got %v, want nil", pid, err)
			}
			killed = append(killed, pid)
		}
	}
	if len(killed) == 0 {
		t.Skip("the engine keeps no process: nothing can die")
	}
	eventually(t, "the killed processes are gone", func() bool {
		now := children()
		return !slices.ContainsFunc(killed, func(pid int) bool { return slices.Contains(now, pid) })
	})
	for i := range 3 {
		res, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("echo b"))
		if err != nil {
			t.Errorf("request %d after the builder died: got %v, want nil", i+1, err)
			continue
		}
		if res.Stdout != "b\n" || !res.Success {
			t.Errorf("request %d after the builder died: got %+v, want b", i+1, res)
		}
	}
}

// children lists this process's children.
func children() (pids []int) {
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		for w := range bytes.FieldsSeq(b) {
			if n, err := strconv.Atoi(string(w)); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// TestRealClose: Close ends running programs, also those that ignore signals and
// have started others.
func TestRealClose(t *testing.T) {
	before := backendtest.Count(t)
	e := openReal(t)
	var waits []func() (sandboxmcp.Result, error)
	up := newLive()
	for range 4 {
		r := shell("trap '' TERM INT HUP; setsid sleep 150 & echo up; while :; do :; done")
		r.Stdout = up
		waits = append(waits, executeIn(t.Context(), t, e, r))
	}
	up.await(t, "up\nup\nup\nup\n", 0)
	begin := time.Now()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v, want that nothing waits for the programs", took)
	}
	for _, wait := range waits {
		res, err := wait()
		if (err != nil && sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled) || err == nil && res.Status != sandboxmcp.StatusCancelled {
			t.Errorf("got %s, %v; want cancelled", res.Status, err)
		}
	}
	before.Same(t)
}
