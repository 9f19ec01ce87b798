package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// counted counts the sandboxes that requests have.
type counted struct {
	*process.Backend

	opened atomic.Int32
}

func (c *counted) Open(ctx context.Context, spec backend.Spec) (backend.Sandbox, error) {
	c.opened.Add(1)
	return c.Backend.Open(ctx, spec)
}

// refusing is an engine that refuses dangerous code, and the number of sandboxes that a call opens.
func refusing(t *testing.T) (e *engine.Engine, opened func(call func()) int32) {
	t.Helper()
	var c *counted
	e = openReal(t, func(cfg *engine.Config) {
		b, ok := cfg.Backends[0].(*process.Backend)
		if !ok {
			t.Fatalf("got backend %T, want that of this host", cfg.Backends[0])
		}
		c = &counted{Backend: b}
		cfg.Backends[0], cfg.RejectDangerous = c, true
	})
	needs(t, e, sandboxmcp.Python)
	return e, func(call func()) int32 {
		before := c.opened.Load()
		call()
		return c.opened.Load() - before
	}
}

// TestDangerousCodeIsRefusedInItsOwnSandbox: the interpreter that would run a program refuses it. The
// record has the attempt, and nothing of the program has run.
func TestDangerousCodeIsRefusedInItsOwnSandbox(t *testing.T) {
	e, opened := refusing(t)
	for range 2 { // the second time the check is compiled
		n := opened(func() {
			_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: "print('ran')\nimport os\nos.system('x')"})
			asCode(t, err, sandboxmcp.CodeValidationFailed)
		})
		if n != 1 {
			t.Errorf("a refused program: got %d sandboxes, want 1", n)
		}
		n = opened(func() {
			if res := execute(t, e, sandboxmcp.Request{Code: "import sys\nprint(len(sys.argv), sys.path[0])\n6*7", Display: sandboxmcp.DisplayStdout}); res.Stdout != "1 /mnt/data\n42\n" || res.Stderr != "" {
				t.Errorf("got %q and %q, want a program that runs as without the check", res.Stdout, res.Stderr)
			}
		})
		if n != 1 {
			t.Errorf("a program that runs: got %d sandboxes, want 1", n)
		}
	}
	entries, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{Action: "execute", Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, entry := range entries.Entries {
		if entry.Phase == sandboxmcp.PhaseOutcome && !*entry.Success {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("got %d refused programs in the record, want 2", refused)
	}
}

// TestACheckedProgramCannotChangeItsVerdict: nothing that the caller sends or an earlier run has left
// is imported by the check, and what is checked are the bytes that run.
func TestACheckedProgramCannotChangeItsVerdict(t *testing.T) {
	e, _ := refusing(t)
	fresh := &sandboxmcp.SessionSpec{ID: "files", Fresh: true}
	run := func(r sandboxmcp.Request) (sandboxmcp.Result, error) {
		r.SessionID, r.Session = "files", fresh
		return e.Execute(t.Context(), sandboxmcp.Caller{}, r)
	}
	// The module that the encoding needs would end the check with success.
	plant := "for name in ('stringprep', '_json', 'json', 'marshal', 'warnings', '_ast', 'encodings'):\n    open('/mnt/data/' + name + '.py', 'w').write('open(\"/mnt/data/imported\", \"w\")\\nimport posix\\nposix._exit(0)\\n')"
	if res, err := run(sandboxmcp.Request{Code: plant}); err != nil || !res.Success {
		t.Fatalf("got %+v and %v, want modules in the session's directory", res, err)
	}
	hidden := "aW1wb3J0IG9zO29zLnN5c3RlbSgnaWQnKQ"
	for name, r := range map[string]sandboxmcp.Request{
		"AModuleOfTheEncoding":   {Code: "# coding: idna\nimport os\nos.system('id')"},
		"TheProgramAsItsModule":  {Code: "# coding: idna\nimport os\nos.system('id')", FileName: "stringprep.py"},
		"AnotherEncoding":        {Code: "# coding: utf-7\nimport os\n#+AAo-os.system('id')"},
		"AnEscapedProgram":       {Code: "# coding: unicode_escape\nimport os\n#\\x0aos.system('id')"},
		"TooDeep":                {Code: "import os\nos.system('id')\nx = " + strings.Repeat("(", 150) + strings.Repeat(")", 150) + "\ny = " + strings.Repeat("-", 50000) + "1"},
		"AFrameOfItsOwn":         {Code: "import os\nos.write(3, b'\\0\\0\\0\\x10{\"type\":\"start\"}')\nos.system('id')"},
		"NoPythonAtAll":          {Code: "print("},
		"AWarningThatIsAnError":  {Code: "import os\nx = '\\d' is 1\nos.system('id')"},
		"TheGuardOfThisProgram":  {Code: "refused = lambda code: None\nimport os\nos.system('id')"},
		"AStringThatIsNoPattern": {Code: "import os\nexec(__import__('base64').b64decode('" + hidden + "'))"},
	} {
		res, err := run(r)
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeValidationFailed {
			t.Errorf("%s: got %+v and %v, want it refused", name, res, err)
		}
	}
	res, err := run(sandboxmcp.Request{Code: "import posix\nprint('imported' in posix.listdir('/mnt/data'))"})
	if err != nil || res.Stdout != "False\n" {
		t.Errorf("got %q, %q and %v, want that the check imported none of the modules", res.Stdout, res.Stderr, err)
	}
}

// TestACellIsCheckedApart: earlier cells have changed everything that a check in their interpreter would use.
func TestACellIsCheckedApart(t *testing.T) {
	e, opened := refusing(t)
	r := sandboxmcp.Request{SessionID: "cells", Session: &sandboxmcp.SessionSpec{ID: "cells"}, Code: "import builtins, sys\nbuiltins.compile = lambda *a, **k: None\nsys.modules.clear()\nprint('changed')"}
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, r)
	if err != nil {
		t.Fatal(err)
	}
	r.Code, r.Session = "import os\nos.system('id')", nil
	n := opened(func() {
		_, err = e.Execute(t.Context(), sandboxmcp.Caller{}, r)
		asCode(t, err, sandboxmcp.CodeValidationFailed)
	})
	if n != 1 {
		t.Errorf("got %d sandboxes, want one for the check", n)
	}
}
