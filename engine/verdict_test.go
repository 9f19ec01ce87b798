package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
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
