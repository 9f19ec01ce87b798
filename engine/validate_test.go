package engine_test

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// TestValidate: a bad request is refused before anything is done for it, with a code, a
// message that names the fault, and a hint.
func TestValidate(t *testing.T) {
	const mib = 1 << 20
	docker := sandboxmcp.Errorf(sandboxmcp.CodeDockerUnavailable, "docker is not there").WithHint("install it")
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{}
	e := open(t, f, at(dir), func(c *engine.Config) { c.Absent = map[string]error{"docker": docker} })
	limits := func(l sandboxmcp.Limits) sandboxmcp.Request {
		return sandboxmcp.Request{Code: "x", Limits: l}
	}
	env := func(k, v string) sandboxmcp.Request {
		return sandboxmcp.Request{Code: "x", Env: map[string]string{k: v}}
	}
	nan, inf := math.NaN(), math.Inf(1)
	for name, c := range map[string]struct {
		req  sandboxmcp.Request
		want sandboxmcp.Code
		says string
	}{
		"UnknownLanguage":   {sandboxmcp.Request{Code: "x", Language: "cobol"}, sandboxmcp.CodeUnsupportedLanguage, "cobol"},
		"NoCode":            {sandboxmcp.Request{}, sandboxmcp.CodeInvalidArgument, "code is empty"},
		"WhiteCode":         {sandboxmcp.Request{Code: " \n\t\r\n"}, sandboxmcp.CodeInvalidArgument, "code is empty"},
		"TooLarge":          {sandboxmcp.Request{Code: strings.Repeat("x", mib+1)}, sandboxmcp.CodeCodeTooLarge, "1048577"},
		"TwoMiB":            {sandboxmcp.Request{Code: strings.Repeat("x", 2*mib)}, sandboxmcp.CodeCodeTooLarge, "1048576"},
		"LargeInBytes":      {sandboxmcp.Request{Code: strings.Repeat("é", mib/2) + "x"}, sandboxmcp.CodeCodeTooLarge, "1048577"},
		"NULInEnv":          {env("KEY", "a\x00b"), sandboxmcp.CodeInvalidArgument, "KEY"},
		"NULInEnvName":      {env("K\x00Y", "a"), sandboxmcp.CodeInvalidArgument, `K\x00Y`},
		"EnvEquals":         {env("A=B", "a"), sandboxmcp.CodeInvalidArgument, "A=B"},
		"EnvEmptyName":      {env("", "a"), sandboxmcp.CodeInvalidArgument, `""`},
		"LD_PRELOAD":        {env("LD_PRELOAD", "x"), sandboxmcp.CodeInvalidArgument, "LD_PRELOAD"},
		"PATH":              {env("PATH", "x"), sandboxmcp.CodeInvalidArgument, "PATH"},
		"BASH_ENV":          {env("BASH_ENV", "x"), sandboxmcp.CodeInvalidArgument, "BASH_ENV"},
		"NODE_OPTIONS":      {env("NODE_OPTIONS", "x"), sandboxmcp.CodeInvalidArgument, "NODE_OPTIONS"},
		"PYTHONPATH":        {env("PYTHONPATH", "x"), sandboxmcp.CodeInvalidArgument, "PYTHONPATH"},
		"NegativeRAM":       {limits(sandboxmcp.Limits{MaxRAMMB: -1}), sandboxmcp.CodeInvalidArgument, "max_ram_mb"},
		"NegativeTime":      {limits(sandboxmcp.Limits{TimeoutSeconds: -1}), sandboxmcp.CodeInvalidArgument, "timeout_seconds"},
		"NaNTime":           {limits(sandboxmcp.Limits{TimeoutSeconds: nan}), sandboxmcp.CodeInvalidArgument, "timeout_seconds"},
		"InfiniteTime":      {limits(sandboxmcp.Limits{TimeoutSeconds: inf}), sandboxmcp.CodeInvalidArgument, "timeout_seconds"},
		"TinyCPU":           {limits(sandboxmcp.Limits{MaxCPUCores: 0.0099}), sandboxmcp.CodeInvalidArgument, "at least 0.01"},
		"NaNCPU":            {limits(sandboxmcp.Limits{MaxCPUCores: nan}), sandboxmcp.CodeInvalidArgument, "max_cpu_cores"},
		"NegativeProcesses": {limits(sandboxmcp.Limits{MaxProcesses: -5}), sandboxmcp.CodeInvalidArgument, "max_processes"},
		"NegativeOutput":    {limits(sandboxmcp.Limits{MaxOutputBytes: -5}), sandboxmcp.CodeInvalidArgument, "max_output_bytes"},
		"NegativeOverCap":   {sandboxmcp.Request{Code: "x", Strict: true, Limits: sandboxmcp.Limits{MaxRAMMB: -1, TimeoutSeconds: 1e9}}, sandboxmcp.CodeInvalidArgument, "max_ram_mb"},
		"OverCap":           {sandboxmcp.Request{Code: "x", Strict: true, Limits: sandboxmcp.Limits{TimeoutSeconds: 3601}}, sandboxmcp.CodeLimitExceedsCap, "3600"},
		"Backend":           {sandboxmcp.Request{Code: "x", Backend: "vm"}, sandboxmcp.CodeInvalidArgument, "vm"},
		"Docker":            {sandboxmcp.Request{Code: "x", Backend: "docker"}, sandboxmcp.CodeDockerUnavailable, "docker"},
		"RequestID":         {sandboxmcp.Request{Code: "x", ID: "a/../b"}, sandboxmcp.CodeInvalidArgument, "a/../b"},
	} {
		t.Run(name, func(t *testing.T) {
			for door, call := range map[string]func(context.Context, sandboxmcp.Caller, sandboxmcp.Request) (sandboxmcp.Result, error){"Execute": e.Execute, "Start": e.Start} {
				res, err := call(t.Context(), sandboxmcp.Caller{}, c.req)
				bad := asCode(t, err, c.want)
				body := (&bad).Body()
				if message, hint := body["message"].(string), body["hint"].(string); !strings.Contains(message, c.says) || hint == "" || strings.ContainsAny(message, "\n\x00") {
					t.Errorf("%s: got message %q and hint %q, want %q in one line and what to do", door, message, hint, c.says)
				}
				if res.RequestID != "" {
					t.Errorf("%s: got a result too: %+v", door, res)
				}
			}
		})
	}
	if calls := f.seen(); len(calls) != 0 {
		t.Errorf("calls of the backend: got %v, want none", calls)
	}
	if n := len(rows(t, dir, "default")); n != 0 {
		t.Errorf("%d entries are in the audit, want none: nothing was going to be done", n)
	}

	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: strings.Repeat("x", mib+1)})
	if bad := asCode(t, err, sandboxmcp.CodeCodeTooLarge); bad.Fields["size_bytes"] != int64(mib+1) || bad.Fields["limit_bytes"] != int64(mib) {
		t.Errorf("got fields %v, want size and limit", bad.Fields)
	}
}

// TestBorders: values at their bounds are accepted.
func TestBorders(t *testing.T) {
	e := open(t, &fake{}, func(c *engine.Config) { c.Now = time.Now })
	for name, r := range map[string]sandboxmcp.Request{
		"OneMiB":  {Code: strings.Repeat("x", 1<<20)},
		"OneByte": {Code: "x"},
		"Ceiling": {Code: "x", Strict: true, Limits: sandboxmcp.Limits{TimeoutSeconds: 3600, MaxRAMMB: 8192, MaxProcesses: 1024, MaxOutputBytes: 64 << 20}},
		"Env":     {Code: "x", Env: map[string]string{"MY_PATH": "", "LD": "x", "A": "a=b\n"}},
		"NamedID": {Code: "x", ID: "run_20260102T030405Z_0123abcd"},
	} {
		res := execute(t, e, r)
		if !res.Success || res.RequestID == "" || r.ID != "" && res.RequestID != r.ID {
			t.Errorf("%s: got %+v", name, res)
		}
	}
	res := execute(t, e, sandboxmcp.Request{Code: "x"})
	if res.Language != sandboxmcp.Python || res.Namespace != "default" || res.Backend != "fake" {
		t.Errorf("got %s, %s, %s; want the defaults", res.Language, res.Namespace, res.Backend)
	}
	if id := string(res.RequestID); len(id) != 36 || id[14] != '4' {
		t.Errorf("got id %q, want UUID version 4", id)
	}
}

// TestRequestIDTwice: an id names one execution, running or ended.
func TestRequestIDTwice(t *testing.T) {
	f := &fake{}
	release := make(chan struct{})
	f.program = func(r *fakeRun) backend.Exit {
		if r.Code() == "long" {
			<-release
		}
		return backend.Exit{}
	}
	e := open(t, f)
	long := shell("long")
	long.ID = "the-one"
	wait := executeIn(t.Context(), t, e, long)
	eventually(t, "it runs", func() bool { n, _ := f.starts(); return n == 1 })
	again := shell("again")
	again.ID = "the-one"
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, again)
	wantCode(t, err, sandboxmcp.CodeInvalidArgument)
	close(release)
	if res, err := wait(); err != nil || !res.Success {
		t.Fatalf("the first request: got %+v and %v, want success", res, err)
	}
	_, err = e.Execute(t.Context(), sandboxmcp.Caller{}, again)
	wantCode(t, err, sandboxmcp.CodeInvalidArgument)
	if n, _ := f.starts(); n != 1 {
		t.Errorf("%d programs were started, want that the second never was", n)
	}
}

// TestErrors: whatever fails, the caller gets an *Error that shows nothing of its cause.
func TestErrors(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	f := &fake{}
	e := open(t, f, at(dir), direct)
	db := database(t, dir)
	do(t, db, `CREATE TRIGGER refuse BEFORE INSERT ON executions BEGIN SELECT RAISE(ABORT, 'a cause'); END`)
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("x"))
	var bad *sandboxmcp.Error
	if !errors.As(err, &bad) {
		t.Fatalf("got %T %v, want an *Error", err, err)
	}
	if strings.Contains(bad.Message, "a cause") {
		t.Errorf("message: got the cause in %q, want it left out", bad.Message)
	}
}

// TestMissingInterpreter: a language without an interpreter is refused, with a hint how to get
// one.
func TestMissingInterpreter(t *testing.T) {
	f := &fake{search: t.TempDir()}
	e := open(t, f)
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: "1", Language: sandboxmcp.Node})
	if bad := asCode(t, err, sandboxmcp.CodeRuntimeUnavailable); !strings.Contains(bad.Hint, "install") {
		t.Errorf("got hint %q, want how to install it", bad.Hint)
	}
	if len(f.seen()) != 0 {
		t.Errorf("calls of the backend: got %v, want none", f.seen())
	}
	for _, r := range languages(t, e) {
		if r.Available || r.Hint == "" || r.Backend != "fake" {
			t.Errorf("got %+v, want not available and a hint", r)
		}
	}
}

// TestNew: an engine that cannot be opened returns the reason.
func TestNew(t *testing.T) {
	file := filepath.Join(searchPath, "bash")
	_, err := engine.New(t.Context(), engine.Config{StateDir: filepath.Join(file, "state"), Backends: []backend.Backend{&fake{}}})
	if bad := asCode(t, err, sandboxmcp.CodeBackendUnavailable); !strings.Contains(bad.Message, file) {
		t.Errorf("got message %q, want the directory in it", bad.Message)
	}
}
