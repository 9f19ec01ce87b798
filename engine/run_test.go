package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// TestStages: the intent is on disk before anything starts, files are collected after every
// process has ended, and the result is on disk before the answer.
func TestStages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	var atStart []sandboxmcp.AuditEntry
	f := &fake{files: map[string]string{"a.txt": "A"}}
	f.onStart = func(backend.Process) error {
		atStart = rows(t, dir, "default")
		return nil
	}
	e := open(t, f, at(dir))
	res := execute(t, e, shell("true"))
	if len(atStart) != 1 || atStart[0].Phase != sandboxmcp.PhaseIntent || atStart[0].RequestID != res.RequestID {
		t.Errorf("at the start the audit held %+v, want the intent of %s", atStart, res.RequestID)
	}
	eventually(t, "the sandbox is given back", func() bool { _, open := f.starts(); return open == 0 })
	calls := slices.Compact(f.seen())
	if diff := cmp.Diff([]string{"open", "start", "wait", "kill", "drain", "usage", "list", "close"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	db := database(t, dir)
	if n := count(t, db, `SELECT count(*) FROM executions WHERE request_id = ? AND receipt IS NOT NULL`, res.RequestID); n != 1 {
		t.Errorf("%d executions are kept with a receipt, want 1", n)
	}
	if n := count(t, db, `SELECT count(*) FROM artifacts WHERE request_id = ? AND signature <> ''`, res.RequestID); n != 1 {
		t.Errorf("%d signed artifacts are kept, want 1", n)
	}
}

// TestIntentComesFirst: as long as the intent cannot be written, nothing starts.
func TestIntentComesFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{}
	e := open(t, f, at(dir), direct)
	execute(t, e, shell("warm"))
	db := database(t, dir)
	do(t, db, `BEGIN IMMEDIATE`)
	wait := executeIn(t.Context(), t, e, shell("true"))
	time.Sleep(150 * time.Millisecond) // time in which a program could start, and must not
	if n, _ := f.starts(); n != 1 {
		t.Errorf("%d programs were started while the intent could not be written, want the first only", n)
	}
	do(t, db, `ROLLBACK`)
	if res, err := wait(); err != nil || !res.Success {
		t.Errorf("got %+v and %v after the lock was gone", res, err)
	}
}

// TestNoIntentNoRun: a request whose intent cannot be written is refused and leaves nothing.
func TestNoIntentNoRun(t *testing.T) {
	t.Parallel() // it waits for the store's patience of 5 s
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{files: map[string]string{"a": "A"}}
	e := open(t, f, at(dir), direct)
	db := database(t, dir)
	do(t, db, `BEGIN IMMEDIATE`)
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("true"))
	bad := asCode(t, err, sandboxmcp.CodeBackendUnavailable)
	if !strings.Contains(bad.Message, dir) || bad.Hint == "" {
		t.Errorf("got message %q and hint %q, want the directory and what to do", bad.Message, bad.Hint)
	}
	do(t, db, `ROLLBACK`)
	eventually(t, "the sandbox is given back", func() bool { _, open := f.starts(); return open == 0 })
	if n, _ := f.starts(); n != 0 {
		t.Errorf("programs started without an intent: got %d, want none", n)
	}
	if n := count(t, db, `SELECT (SELECT count(*) FROM audit) + (SELECT count(*) FROM executions) + (SELECT count(*) FROM artifacts)`); n != 0 {
		t.Errorf("rows left: got %d, want none", n)
	}
	if s := stats(e); s.Queue.Active != 0 || s.Queue.Queued != 0 {
		t.Errorf("queue: got %+v, want it empty", s.Queue)
	}
	if res := execute(t, e, shell("true")); !res.Success {
		t.Errorf("the next run: got %+v, want success", res)
	}
}

// TestOneTransaction: result, artifacts and outcome are kept together or not at all.
func TestOneTransaction(t *testing.T) {
	for name, trigger := range map[string]string{
		"Artifact":  `CREATE TRIGGER refuse BEFORE INSERT ON artifacts BEGIN SELECT RAISE(ABORT, 'no'); END`,
		"Execution": `CREATE TRIGGER refuse BEFORE INSERT ON executions BEGIN SELECT RAISE(ABORT, 'no'); END`,
		"Outcome":   `CREATE TRIGGER refuse BEFORE INSERT ON audit WHEN NEW.phase = 'outcome' AND NEW.success = 1 BEGIN SELECT RAISE(ABORT, 'no'); END`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			f := &fake{files: map[string]string{"a": "A", "b": "B"}}
			e := open(t, f, at(dir), direct)
			db := database(t, dir)
			do(t, db, trigger)
			res, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("true"))
			if err == nil {
				t.Fatalf("got %+v, want an error: what is answered has to be kept", res)
			}
			if n := count(t, db, `SELECT (SELECT count(*) FROM executions) + (SELECT count(*) FROM artifacts)`); n != 0 {
				t.Errorf("rows kept: got %d, want none", n)
			}
			if n := count(t, db, `SELECT count(*) FROM audit WHERE success = 1`); n != 0 {
				t.Error("audit: got a success, want none")
			}
			list := rows(t, dir, "default")
			if len(list) != 2 || list[1].Phase != sandboxmcp.PhaseOutcome || list[1].Success == nil || *list[1].Success {
				t.Errorf("the audit holds %+v, want the intent and an outcome without success", list)
			}
		})
	}
}

func TestAudit(t *testing.T) {
	const secret = "s3cret-w0rd"
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{files: map[string]string{"f-" + secret + ".txt": secret}, usage: backend.Usage{PeakMemory: 3 << 20, CPU: 1500 * time.Millisecond, PeakTasks: 2}}
	f.program = func(r *fakeRun) backend.Exit {
		fmt.Fprint(r.Stdout, secret, secret)
		fmt.Fprint(r.Stderr, secret)
		return backend.Exit{Code: 3}
	}
	e := open(t, f, at(dir))
	res := execute(t, e, sandboxmcp.Request{Code: "print('" + secret + "')", Env: map[string]string{"KEY": secret}, Stdin: []byte(secret)}, sandboxmcp.Caller{Namespace: "acme", Actor: "mcp"})
	list := rows(t, dir, "acme")
	if len(list) != 3 || list[2].Action != "artifact_signed" || list[2].RequestID != res.RequestID || list[2].Detail != "1 files" {
		t.Fatalf("the audit holds %+v, want intent, outcome and that a file was signed", list)
	}
	for i, phase := range []string{sandboxmcp.PhaseIntent, sandboxmcp.PhaseOutcome} {
		got := list[i]
		want := sandboxmcp.AuditEntry{
			ID: got.ID, Seq: int64(i + 1), Timestamp: got.Timestamp, Action: "execute", Phase: phase, RequestID: res.RequestID, Language: sandboxmcp.Python,
			Namespace: "acme", Actor: "mcp", Prev: got.Prev, Hash: got.Hash, Metadata: got.Metadata,
			Detail: got.Detail, ExitCode: got.ExitCode, DurationMS: got.DurationMS, Success: got.Success, Usage: got.Usage,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", phase, diff)
		}
		if text, err := json.Marshal(got); err != nil || strings.Contains(string(text), secret) || got.ID == "" || got.Timestamp.IsZero() {
			t.Errorf("%s: got %v: %s, want an entry with id and time and without the secret", phase, err, text)
		}
	}
	intent, outcome := list[0], list[1]
	if intent.ExitCode != nil || intent.Success != nil || intent.DurationMS != nil {
		t.Errorf("intent: got %+v, want no outcome in it", intent)
	}
	if got, want := intent.Metadata["code_sha256"], hash("print('"+secret+"')"); got != want {
		t.Errorf("the intent has the code's hash %v, want %s", got, want)
	}
	if !regexp.MustCompile(`^python: exit=3 duration=\d+ms$`).MatchString(outcome.Detail) {
		t.Errorf("got detail %q", outcome.Detail)
	}
	if outcome.ExitCode == nil || *outcome.ExitCode != 3 || outcome.Success == nil || *outcome.Success || outcome.DurationMS == nil || *outcome.DurationMS != res.DurationMS {
		t.Errorf("outcome: got %+v, want exit code 3, no success and the duration of the result", outcome)
	}
	if diff := cmp.Diff(&res.Usage, outcome.Usage); diff != "" || res.Usage.PeakRAMMB != 3 || res.Usage.CPUSeconds != 1.5 || res.Usage.PeakTasks != 2 {
		t.Errorf("usage %+v (-result +audit):\n%s", res.Usage, diff)
	}
	for key, want := range map[string]any{
		"status": "failed", "stdout_bytes": float64(22), "stderr_bytes": float64(11), "stdout_sha256": hash(res.Stdout), "stderr_sha256": hash(res.Stderr), "artifacts": float64(1), "tier": "L3",
	} {
		if got := outcome.Metadata[key]; got != want {
			t.Errorf("the outcome's metadata has %s = %v, want %v", key, got, want)
		}
	}
	s, err := store.Open(t.Context(), storetest.On(store.Config{Dir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if report, err := audit.Verify(t.Context(), s.DB(), audit.Evidence{Open: func(string) (string, error) { return "", nil }}); err != nil || len(report.Faults) != 0 || report.Entries != 3 {
		t.Errorf("audit chain: got %+v, %v; want it sound", report, err)
	}
}

// TestReceipt: the receipt verifies and states what the result says, and the
// signature of each artifact verifies.
func TestReceipt(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{files: map[string]string{"a.txt": "A", "sub/b c.txt": "BB", "evil": "link", ".hidden": "x"}}
	f.program = func(r *fakeRun) backend.Exit {
		fmt.Fprint(r.Stdout, "out\xff, and more than is kept")
		fmt.Fprint(r.Stderr, "err")
		return backend.Exit{Code: 4}
	}
	e := open(t, f, at(dir))
	res := execute(t, e, sandboxmcp.Request{Code: "some code", Language: sandboxmcp.Node, Limits: sandboxmcp.Limits{MaxOutputBytes: 12, MaxRAMMB: 100_000}}, of("acme"))
	public, err := sign.PublicKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	if res.Receipt == nil {
		t.Fatal("got no receipt, want one")
	}
	p, err := sign.Verify(*res.Receipt, public)
	if err != nil {
		t.Fatal(err)
	}
	limits := sandboxmcp.DefaultLimits()
	limits.MaxOutputBytes, limits.MaxRAMMB = 12, 8192
	want := sandboxmcp.ReceiptPredicate{
		Version: 1, Product: "1.2.3", RequestID: res.RequestID, Namespace: "acme", Language: sandboxmcp.Node, CodeSHA256: hash("some code"),
		Status: sandboxmcp.StatusFailed, ExitCode: 4, StartedAt: p.StartedAt, EndedAt: p.EndedAt,
		StdoutSHA256: hash("out\ufffd, and mo"), StderrSHA256: hash("err"), StdoutTruncated: true,
		Artifacts: []sandboxmcp.ReceiptArtifact{{Path: "/mnt/data/a.txt", SizeBytes: 1, SHA256: hash("A")}, {Path: "/mnt/data/sub/b c.txt", SizeBytes: 2, SHA256: hash("BB")}},
		Limits:    limits, Isolation: res.Isolation, Network: &res.Network,
		Secrets: []string{},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("receipt (-want +got):\n%s", diff)
	}
	if p.StartedAt.IsZero() || p.EndedAt.Before(p.StartedAt) {
		t.Errorf("receipt: got a run from %v to %v, want both set and in order", p.StartedAt, p.EndedAt)
	}
	if got, want := hash(res.Stdout), p.StdoutSHA256; got != want {
		t.Errorf("the answered stdout %q has the hash %s, the receipt %s", res.Stdout, got, want)
	}
	if len(res.Artifacts) != 2 {
		t.Fatalf("got %d artifacts, want 2: %+v", len(res.Artifacts), res.Artifacts)
	}
	for _, a := range res.Artifacts {
		st := sign.ArtifactStatement{Namespace: "acme", RequestID: res.RequestID, Path: a.Path, SizeBytes: a.SizeBytes, SHA256: a.SHA256, CodeSHA256: hash("some code"), CreatedAt: a.CreatedAt}
		if err := sign.VerifyArtifact(st, a.Signature, public); err != nil {
			t.Errorf("signature of %s: got %v, want nil", a.Name, err)
		}
		if a.SHA256 != hash(string(a.ContentB64)) {
			t.Errorf("%s: got another hash, want that of the content", a.Name)
		}
		st.RequestID = "another"
		if sign.VerifyArtifact(st, a.Signature, public) == nil {
			t.Errorf("%s: signature with another run: got no error, want one", a.Name)
		}
	}
	if got, want := res.Artifacts[1].URI, "artifact://"+string(res.RequestID)+"/sub/b%20c.txt"; got != want {
		t.Errorf("got URI %q, want %q", got, want)
	}
	skipped, _ := json.Marshal(res.Metadata["skipped"])
	if got, want := string(skipped), `[{"name":"evil","reason":"symbolic link"}]`; got != want {
		t.Errorf("got skipped %s, want %s", got, want)
	}
}

// TestSpec: the limits and walls that the sandbox gets are those in the result.
func TestSpec(t *testing.T) {
	f := &fake{}
	e := open(t, f)
	res := execute(t, e, sandboxmcp.Request{Code: "x", Language: sandboxmcp.Shell, Limits: sandboxmcp.Limits{MaxRAMMB: 100, MaxCPUCores: 0.5, MaxProcesses: 3, TimeoutSeconds: 7}, Env: map[string]string{"KEY": "v"}, Stdin: []byte("in")})
	got := f.specs[0]
	want := backend.Spec{
		ID: got.ID, MinTier: sandboxmcp.TierL2, Hint: "shell", MemoryBytes: 100 << 20, CPUCores: 0.5, MaxTasks: 48, CPUTime: got.CPUTime,
		WorkBytes: 50 << 20, WorkInodes: 20_000, TempBytes: 50 << 20, Trees: got.Trees,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if got.CPUTime < 7*time.Second || got.CPUTime > 10*time.Second {
		t.Errorf("got %v of CPU time, want a little more than the 7 s of the clock", got.CPUTime)
	}
	if res.Usage.MaxTasks != 48 {
		t.Errorf("the result says max_tasks %d, want 48", res.Usage.MaxTasks)
	}
	p := f.started[0]
	if string(p.Stdin) != "in" || !slices.Contains(p.Env, "KEY=v") || slices.ContainsFunc(p.Argv, func(a string) bool { return a == "x" }) || string(p.Program[0].Data) != "x" {
		t.Errorf("the program: got %+v, want its stdin, variables and code, and no code in its arguments", p)
	}
}

// TestNothingLeft: a run that fails before its program starts gives back its sandbox and its
// place in the queue. It is not counted as an execution, and its outcome is in the audit
// record.
func TestNothingLeft(t *testing.T) {
	refused := sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "no walls")
	for name, c := range map[string]struct {
		fake *fake
		req  sandboxmcp.Request
		want sandboxmcp.Code
	}{
		"Open":     {fake: &fake{onOpen: func(context.Context, backend.Spec) error { return refused }}, want: sandboxmcp.CodeIsolationUnavailable},
		"Start":    {fake: &fake{onStart: func(backend.Process) error { return errLost }}, want: sandboxmcp.CodeExecutionFailed},
		"Walls":    {fake: &fake{onWalls: func() error { return refused }}, want: sandboxmcp.CodeIsolationUnavailable},
		"Wait":     {fake: &fake{onWait: func() error { return errLost }}, want: sandboxmcp.CodeExecutionFailed},
		"Lost":     {fake: &fake{program: end(backend.Exit{Lost: true})}, want: sandboxmcp.CodeExecutionFailed},
		"Kill":     {fake: &fake{onKill: func() error { return errLost }}, want: sandboxmcp.CodeExecutionFailed},
		"Tier":     {fake: &fake{tier: sandboxmcp.TierL1}, want: sandboxmcp.CodeIsolationUnavailable},
		"FileName": {fake: &fake{}, req: sandboxmcp.Request{FileName: "../x"}, want: sandboxmcp.CodeInvalidFilename},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			f := c.fake
			e := open(t, f, at(dir))
			req := c.req
			req.Code, req.Language = "true", sandboxmcp.Shell
			_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, req)
			wantCode(t, err, c.want)
			eventually(t, "the sandbox is given back", func() bool { _, open := f.starts(); return open == 0 })
			s := stats(e)
			for status, n := range s.Executions {
				if n != 0 {
					t.Errorf("executions: got %d counted as %s, want none", n, status)
				}
			}
			if s.Queue.Active != 0 {
				t.Errorf("queue: got %d active, want none", s.Queue.Active)
			}
			for i, r := range rows(t, dir, "default") {
				if (i == 1) != (r.Phase == sandboxmcp.PhaseOutcome) || i == 1 && (r.Success == nil || *r.Success || r.Detail != "shell: "+string(c.want)) || i > 1 {
					t.Errorf("audit entry %d: got %+v, want an intent and an outcome without success", i, r)
				}
			}
			if name == "Start" || name == "Wait" || name == "Lost" {
				return
			}
			f.onOpen, f.onWalls, f.onKill, f.tier = nil, nil, nil, ""
			if res := execute(t, e, shell("true")); !res.Success {
				t.Errorf("the next run: got %+v, want success", res)
			}
		})
	}
}

// TestLostWalls: walls that could not be read are not reported.
func TestLostWalls(t *testing.T) {
	e := open(t, &fake{onWalls: func() error { return errLost }})
	res := execute(t, e, shell("true"))
	if res.Isolation == nil || res.Isolation.Tier != sandboxmcp.TierL0 || len(res.Isolation.Walls) != 0 || len(res.Isolation.Weak) == 0 {
		t.Errorf("got isolation %+v, want that nothing is known", res.Isolation)
	}
}

// TestClose: Close ends runs and requests that wait, and leaves nothing behind.
func TestClose(t *testing.T) {
	f := &fake{program: (*fakeRun).Hang}
	e := open(t, f, func(c *engine.Config) { c.MaxConcurrent = 1 })
	running := executeIn(t.Context(), t, e, shell("runs"))
	eventually(t, "it runs", func() bool { n, _ := f.starts(); return n == 1 })
	waiting := executeIn(t.Context(), t, e, shell("waits"))
	eventually(t, "it waits", func() bool { return stats(e).Queue.Queued == 1 })
	begin := time.Now()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v, want that it waits for no program", took)
	}
	if res, err := running(); err != nil || res.Status != sandboxmcp.StatusCancelled || res.ExitCode != -1 {
		t.Errorf("what ran came to %+v and %v, want cancelled", res, err)
	}
	_, err := waiting()
	wantCode(t, err, sandboxmcp.CodeCancelled)
	_, err = e.Execute(t.Context(), sandboxmcp.Caller{}, shell("late"))
	wantCode(t, err, sandboxmcp.CodeCancelled)
	_, err = e.Start(t.Context(), sandboxmcp.Caller{}, shell("late"))
	wantCode(t, err, sandboxmcp.CodeCancelled)
	if n, open := f.starts(); n != 1 || open != 0 || !f.over {
		t.Errorf("got %d programs started, %d sandboxes open, backend closed %v; want 1, none and true", n, open, f.over)
	}
	if err := e.Close(); err != nil {
		t.Errorf("Close, the second time: got %v, want nil", err)
	}
}
