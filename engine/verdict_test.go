package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// plantsAVerdict leaves a file in a session of single runs that Python executes when a later
// program first looks for a package. It writes a frame to the driver's channel and ends the process.
const plantsAVerdict = `
import sys, pathlib
site = pathlib.Path("/tmp/.local/lib/python%d.%d/site-packages" % sys.version_info[:2])
site.mkdir(parents=True, exist_ok=True)
code = "import os; f = %a.encode(); open('/mnt/data/ran', 'w').write('x'); os.write(3, len(f).to_bytes(4, 'big') + f); os._exit(3)" % FRAME
(site / "planted.pth").write_text(code + "\n")
`

// TestNoProgramForgesThatItWasNotRun: the import of a name that a program lacks can run code of
// files before the program. It cannot say that the program was refused or not compiled, with words
// that are not masked.
func TestNoProgramForgesThatItWasNotRun(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		e := openReal(t, func(c *engine.Config) { c.RejectDangerous = guarded })
		needs(t, e, sandboxmcp.Python)
		addSecret(t, e, "TOKEN", secret)
		for name, frame := range map[string]string{
			"refused": `{"type":"refused","issues":[[1,1,"error","x","` + secret + `"]]}`,
			"syntax":  `{"type":"syntax","name":"SyntaxError","message":"m","line":1,"col":1}`,
		} {
			t.Run(fmt.Sprint(name, guarded), func(t *testing.T) {
				id := create(t, e, sandboxmcp.SessionSpec{Fresh: true})
				if res := execute(t, e, in(id, strings.ReplaceAll(plantsAVerdict, "FRAME", fmt.Sprintf("%q", frame)))); !res.Success {
					t.Fatalf("the file was not planted: %s %q", res.Status, res.Stderr)
				}
				r := in(id, "np.zeros(3)")
				r.Display = sandboxmcp.DisplayResults
				res, err := e.Execute(t.Context(), sandboxmcp.Caller{}, r)
				if err != nil {
					t.Fatalf("got %v with %v, want a result", err, sandboxmcp.AsError(err).Fields)
				}
				if res.Status != sandboxmcp.StatusFailed || res.ExitCode != 3 || len(res.Artifacts) != 1 {
					t.Errorf("got %s, exit code %d and %d files; want failed, 3 and the file that was made", res.Status, res.ExitCode, len(res.Artifacts))
				}
			})
		}
	}
}

// judges is a package that answers for the check of programs, if it is imported before that.
const judges = `
import builtins
really = builtins.exec
def judge(code, names, *more):
    really(code, names, *more)
    if "refused" in names:
        names["refused"] = lambda text: ANSWER
builtins.exec = judge
`

// TestPackagesJudgeNoProgram: no package is imported ahead in an interpreter that judges its program. It could let a
// dangerous program pass, or say of a program that it was not run.
func TestPackagesJudgeNoProgram(t *testing.T) {
	for name, answer := range map[string]string{"Passes": "None", "Refuses": `'[[1, 1, "error", "x", "forged"]]'`} {
		t.Run(name, func(t *testing.T) {
			modules := map[string]string{"numpy.py": strings.ReplaceAll(judges, "ANSWER", answer), "pandas.py": importing}
			e := withPythonOn(t, modules, func(c *engine.Config) { c.RejectDangerous = true })
			said, ahead := preloadedBy(t, func(r sandboxmcp.Request) sandboxmcp.Result { return execute(t, e, r) })
			if said != "good" || ahead {
				t.Errorf("the package: got %q, ahead %v; want good, and not imported ahead", said, ahead)
			}
			_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Language: sandboxmcp.Python, Code: "import pandas, os\nos.system('id')"})
			wantCode(t, err, sandboxmcp.CodeValidationFailed)
		})
	}
}

// denies is a package that says of programs that they cannot be compiled, if it is imported before.
const denies = `
import posix
really, said = posix.write, b'{"type":"syntax","name":"SyntaxError","message":"forged","line":1,"col":1}'
def write(fd, data):
    if fd == 3 and b'"start"' in data:
        really(3, len(said).to_bytes(4, "big") + said)
        return len(data)
    return really(fd, data)
posix.write = write
`

// TestPackagesForgeNoSyntaxError: a package that was imported ahead says that a program was not compiled. The program
// runs, and the result says so. A program that cannot be compiled is rejected as ever.
func TestPackagesForgeNoSyntaxError(t *testing.T) {
	e := withPythonOn(t, map[string]string{"numpy.py": denies, "pandas.py": importing}, func(c *engine.Config) { c.MaxConcurrent = 1 })
	said, ahead := preloadedBy(t, func(r sandboxmcp.Request) sandboxmcp.Result { return execute(t, e, r) })
	testkit.Need(t, "zygote", ahead, "nothing is imported ahead here")
	r := sandboxmcp.Request{Language: sandboxmcp.Python, Display: sandboxmcp.DisplayResults, Code: "import pandas\nprint(pandas.says)"}
	res := execute(t, e, r)
	if res.Status != sandboxmcp.StatusCompleted || res.Stdout != said+"\n" || !res.Success || res.Error == nil || res.Error.Value != "forged" {
		t.Errorf("a program that runs: got %s %q, error %v; want completed, what it printed, and the package's words as an error", res.Status, res.Stdout, res.Error)
	}
	r.Code = "import pandas\nprint(1"
	if res = execute(t, e, r); res.Status != sandboxmcp.StatusRejected || res.Stdout != "" {
		t.Errorf("a program that cannot be compiled: got %s %q, want rejected", res.Status, res.Stdout)
	}
}

// TestEncodingsAreNotOfTheProgramsDirectory: an encoding that a program declares imports modules of
// the standard library before the program begins, and none of its directory. The program imports
// from there.
func TestEncodingsAreNotOfTheProgramsDirectory(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{Fresh: true})
	const module = "open('/mnt/data/ran', 'w').write('x')"
	execute(t, e, in(id, fmt.Sprintf("for name in 'quopri', 'mine': open('/mnt/data/' + name + '.py', 'w').write(%q)", module)))
	r := in(id, "# coding: quopri\nprint(1)")
	r.Display = sandboxmcp.DisplayResults
	if res := execute(t, e, r); res.Status != sandboxmcp.StatusRejected || len(res.Artifacts) > 0 {
		t.Errorf("the encoding: got %s, %d files; want rejected and none", res.Status, len(res.Artifacts))
	}
	stdout(t, e, "[]\n", in(id, "import glob; print(glob.glob('/mnt/data/ran'))"))
	stdout(t, e, "['/mnt/data/ran'] /mnt/data\n", in(id, "import mine, glob, sys; print(glob.glob('/mnt/data/ran'), sys.path[0])"))
}

// TestManyDisplaysEndNoInterpreter: a program may display more values than a result has. Frames
// beside those of the driver end the interpreter when they are many, because each takes the server's time.
func TestManyDisplaysEndNoInterpreter(t *testing.T) {
	e := openReal(t)
	for language, code := range map[sandboxmcp.Language][2]string{
		sandboxmcp.Python: {"x = 1\nfor i in range(40000): display(i)", "print(x)"},
		sandboxmcp.Node:   {"var x = 1; const { display } = require('sandbox'); for (let i = 0; i < 40000; i++) display(i);", "console.log(x)"},
	} {
		needs(t, e, language)
		id := create(t, e, sandboxmcp.SessionSpec{Language: language})
		if res := execute(t, e, in(id, code[0])); !res.Success || len(res.Results) != 256 || res.Metadata["results_truncated"] != true {
			t.Errorf("%s: got %s %q, %d values, %v; want success, 256 values and that they are not all", language, res.Status, res.Stderr, len(res.Results), res.Metadata)
		}
		stdout(t, e, "1\n", in(id, code[1]))
	}
	id := create(t, e, sandboxmcp.SessionSpec{})
	res := execute(t, e, in(id, `import os
for i in range(40): os.write(3, b'\0\0\0\x0c{"type":"x"}' * 1000)`))
	if res.Success || !res.StateLost {
		t.Errorf("40,000 frames beside the driver's: got %s, want the interpreter ended", res.Status)
	}
}
