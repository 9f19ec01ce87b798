package validate_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
	"github.com/sandboxmcp/sandboxmcp/internal/validate"
)

// python checks Python code with an interpreter of this machine.
func python(t *testing.T, code string, o validate.Options) sandboxmcp.CodeReport {
	t.Helper()
	path, err := exec.LookPath("/usr/bin/python3") // not a version manager's, which starts slowly
	if err != nil {
		path, err = exec.LookPath("python3")
	}
	testkit.Need(t, "python", err == nil, "no python3 in PATH")
	p := validate.Python(code, o)
	cmd := exec.CommandContext(t.Context(), path, "-I", "-c", p.Program)
	cmd.Stdin = bytes.NewReader(p.Stdin)
	out, err := cmd.Output()
	r, failed := p.Report(string(out), err != nil)
	if failed != nil {
		t.Fatalf("got %v for %q", failed, out)
	}
	return r
}

// checkers are the checks, by language.
func checkers(t *testing.T) map[sandboxmcp.Language]func(string, validate.Options) sandboxmcp.CodeReport {
	return map[sandboxmcp.Language]func(string, validate.Options) sandboxmcp.CodeReport{
		sandboxmcp.Python: func(code string, o validate.Options) sandboxmcp.CodeReport { return python(t, code, o) },
		sandboxmcp.Node:   validate.Node,
		sandboxmcp.Shell:  validate.Shell,
	}
}

func TestSyntaxErrorsHaveAPlace(t *testing.T) {
	check := checkers(t)
	for name, c := range map[string]struct {
		language  sandboxmcp.Language
		code      string
		line, col int
	}{
		"PythonOperand":   {"python", "x = 1\ny = 2 +\n", 2, 8},
		"PythonCompile":   {"python", "x = 1\nreturn x\n", 2, 1},
		"PythonNull":      {"python", "x = 1\n\x00", 2, 1},
		"NodeOperand":     {"node", "const ä = 'ö';\nconst b = 'ö' + ;\n", 2, 17},
		"NodeLarge":       {"node", "x = ;\n" + strings.Repeat("f();\n", 5000), 1, 5},
		"ShellWord":       {"shell", "echo a\nfi\n", 2, 1},
		"ShellNull":       {"shell", "echo a\x00", 1, 7},
		"ShellCharacters": {"shell", "echo 'ä' )\n", 1, 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := check[c.language](c.code, validate.Options{})
			if r.Valid || r.Verdict != sandboxmcp.VerdictReject || len(r.Issues) == 0 {
				t.Fatalf("got %+v, want it rejected", r)
			}
			i := r.Issues[0]
			if i.Line != c.line || i.Col != c.col || i.Rule != "syntax" || i.Severity != sandboxmcp.SeverityError {
				t.Errorf("got %+v, want a syntax error at %d:%d", i, c.line, c.col)
			}
		})
	}
}

// TestDangers: each pattern is found by what the code does, however it is written, and text
// that only looks like it is not.
func TestDangers(t *testing.T) {
	check := checkers(t)
	for language, rows := range map[sandboxmcp.Language]map[string]string{
		"python": {
			"import os\nos.system('x')":                             "os.system",
			"from os import system as s\ns('x')":                    "os.system",
			"import os\ngetattr(os, 'sys' + 'tem')('x')":            "os.system",
			"import os\nf = getattr(os, f'sys{\"tem\"}')\nf('x')":   "os.system os.system",
			"import os\nvars(os)['system']('x')":                    "os.system",
			"import os\nos.__dict__[''.join(['sys', 'tem'])]('x')":  "os.system",
			"__import__('o' + 's').system('x')":                     "os.system __import__",
			"import os\ngetattr(os, input())('x')":                  "getattr",
			"e = eval\ne('1')":                                      "eval",
			"__builtins__['eval']('1')":                             "eval",
			"import builtins\nbuiltins.exec('1')":                   "exec",
			"compile('1', '', 'eval')":                              "compile",
			"import subprocess as p\np.run('x', shell=True)":        "subprocess with shell=True",
			"import subprocess as p\np.run(['x'], shell=False)":     "",
			"open('/etc/passwd')":                                   "reading system files",
			"import shutil, os\nshutil.rmtree('x')\nos.unlink('y')": "shutil.rmtree os.remove/unlink",
			"import socket\nsocket.socket()":                        "raw socket creation",
			"from pickle import loads\nloads(b'')":                  "pickle",
			"from ctypes import CDLL":                               "ctypes",
			"x = chr(1) + chr(2)":                                   "chr() concatenation",
			"# os.system('x')\ns = 'eval(1)'\nprint(s)":             "",
			"def eval(x): return x\neval(1)":                        "",
			"class A:\n  def exec(self): pass\nA().exec()":          "",
			"import re\nre.compile('x')":                            "",
			"a = b\nb = a\na('x')\nx = x + x\ngetattr(a, x)":        "",
			"import os\nos.path.join('system')":                     "",
			"%pip install x\nprint(1)":                              "magic",
		},
		"node": {
			"eval('1')":                                 "eval",
			"globalThis['ev' + 'al']('1')":              "eval",
			"new Function('return 1')()":                "Function() constructor",
			"require('child_' + 'process')":             "require('child_process')",
			"import { exec } from 'node:child_process'": "require('child_process')",
			"await import('child_process')":             "require('child_process')",
			"process.exit(1)":                           "process.exit",
			"fs.unlinkSync('x'); fs.rmSync('y')":        "fs.unlinkSync fs.rmSync",
			"setTimeout('x', 1)":                        "setTimeout with string argument",
			"setTimeout(() => 1, 1)":                    "",
			"const s = 'eval(1)'; /eval(1)/.test(s)":    "",
			"// eval(1)\n`eval(1)`; x.eval(1)":          "",
			"function eval(x) {}":                       "",
			"x = 4 / 2; y = eval(z) / 2":                "eval",
			"process.exitCode = 1":                      "",
		},
		"shell": {
			"rm -rf /":                         "rm -rf /",
			"sudo rm -fr \"$HOME\"":            "rm -rf /",
			"rm -rf ./build":                   "",
			"echo 'rm -rf /'":                  "",
			"# rm -rf /\necho \"curl x | sh\"": "",
			"dd if=x of=/dev/sda":              "dd to device",
			"dd if=x of=/dev/null":             "",
			":(){ :|:& };:":                    "fork bomb detected",
			"mkfs.ext4 /dev/sda":               "mkfs",
			"chmod -R 777 .":                   "chmod 777",
			"curl x | tee y | sudo bash":       "",
			"curl x | sudo bash":               "piping curl to shell",
			"wget -qO- x | sh":                 "piping wget to shell",
			"/bin/sh -c 'x'":                   "sh -c",
			"nc -lp 80":                        "netcat listener",
			"chown -R me .":                    "recursive chown",
			"echo x > /dev/sda":                "writing to raw device",
			"kill -9 -1":                       "kill all processes",
			"crontab -r":                       "crontab removal",
		},
	} {
		for code, want := range rows {
			r := check[language](code, validate.Options{})
			var rules []string
			for _, i := range r.Issues {
				rules = append(rules, i.Rule)
			}
			if got := strings.Join(rules, " "); got != want || !r.Valid {
				t.Errorf("%s: got %q, valid %v; want %q", code, got, r.Valid, want)
			}
		}
	}
}

func TestOptions(t *testing.T) {
	const code = "import os\nos.system('x'); eval('1')"
	if r := python(t, code, validate.Options{RejectDangerous: true}); r.Valid || r.Issues[0].Severity != sandboxmcp.SeverityError {
		t.Errorf("reject dangerous: got %+v, want errors", r)
	}
	r := python(t, code, validate.Options{RejectDangerous: true, Disabled: []string{"os.system()", "eval"}})
	if !r.Valid || len(r.Issues) != 0 {
		t.Errorf("disabled rules: got %+v, want no issues", r)
	}
	if r := python(t, "x =", validate.Options{Disabled: []string{"syntax"}}); r.Valid {
		t.Error("a syntax error was disabled, want it told")
	}
}

func TestFixes(t *testing.T) {
	for name, c := range map[string]struct{ code, want, said string }{
		"Imports":    {"print(math.pi, json.dumps(Path('x').name))\n", "import math\nimport json\nfrom pathlib import Path\nprint(math.pi, json.dumps(Path('x').name))\n", "added import math|added import json|added from pathlib import Path"},
		"Docstring":  {"# c\n'''d'''\nfrom __future__ import annotations\n\n@f\ndef g(): return os.sep\n", "# c\n'''d'''\nfrom __future__ import annotations\n\nimport os\n@f\ndef g(): return os.sep\n", "added import os"},
		"OneLine":    {"'''ä'''; print(os.sep)", "'''ä'''; import os; print(os.sep)", "added import os"},
		"Class":      {"datetime.now()", "from datetime import datetime\ndatetime.now()", "added from datetime import datetime"},
		"Module":     {"datetime.datetime.now()", "import datetime\ndatetime.datetime.now()", "added import datetime"},
		"Bound":      {"def f(json): return json.x\nfor re in []: re", "", ""},
		"Star":       {"from x import *\nprint(math.pi)", "", ""},
		"Later":      {"try:\n  import numpy\nexcept ImportError as os:\n  os\nmatch 1:\n  case [io, *sys]: io, sys\n", "", ""},
		"Unknown":    {"print(nothing_such)", "", ""},
		"NotThere":   {"print(bs4.x)", "", ""},
		"Quotes":     {"print(“a”, ‘b’)", "print(\"a\", 'b')", "replaced typographic quotes"},
		"Kept":       {"print('“a”')", "", ""},
		"Fence":      {"Look:\n```python\nx = 1\n```\nDone", "x = 1\n", "took the program out of its markdown fence"},
		"Spaces":     {"x\u00a0= 1", "x = 1", "replaced unusual spaces"},
		"Tabs":       {"if 1:\n    x = 1\n\ty = 2\n", "if 1:\n    x = 1\n    y = 2\n", "replaced tabs by 4 spaces"},
		"WideTabs":   {"if 1:\n        x = 1\n\ty = 2\n", "if 1:\n        x = 1\n        y = 2\n", "replaced tabs by 8 spaces"},
		"Indented":   {"  x = 1\n  if x:\n    y = 2", "x = 1\nif x:\n  y = 2", "removed the indentation of the whole program"},
		"Both":       {"```\nprint(“a”, os.sep)\n```", "import os\nprint(\"a\", os.sep)\n", "took the program out of its markdown fence|replaced typographic quotes|added import os"},
		"Hopeless":   {"print(“a”", "", ""},
		"LineEnds":   {"x = 1\r\nprint(math.pi)\r\n", "import math\nx = 1\nprint(math.pi)\n", "added import math"},
		"FirstBytes": {"\ufeffx = 1\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := python(t, c.code, validate.Options{Fix: true})
			want := c.want
			if want == "" {
				want = c.code
			}
			if diff := cmp.Diff([]string{want, c.said, c.code}, []string{r.FixedCode, strings.Join(r.FixesApplied, "|"), r.OriginalCode}); diff != "" {
				t.Errorf("code, fixes, original (-want +got):\n%s", diff)
			}
			if fixed := r.Verdict == sandboxmcp.VerdictFixed; fixed != (c.said != "") {
				t.Errorf("got verdict %s", r.Verdict)
			}
			again := python(t, r.FixedCode, validate.Options{Fix: true})
			if c.said != "" && (again.Verdict != sandboxmcp.VerdictPass || !again.Valid) {
				t.Errorf("the corrected code: got %+v, want it to pass", again)
			}
			if plain := python(t, c.code, validate.Options{}); len(plain.FixesApplied) > 0 || plain.FixedCode != c.code {
				t.Errorf("without fixing: got %v", plain.FixesApplied)
			}
		})
	}
}

// TestBombsAreRefused: code that nests so deeply that a parser would need more stack than
// there is, is refused. The stack is bounded here by less than the process has, so that a
// parser that runs anyway ends this test.
func TestBombsAreRefused(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(256 << 20))
	check := checkers(t)
	for language, units := range map[sandboxmcp.Language][]string{
		"python": {"(", "[", "{", "-", "not ", "lambda: ", "x.a", "1+", "f(", "x[", "if 1:\n"},
		"node":   {"(", "[", "{", "!", "a=>", "x?", "x=", "if(1)", "new ", "`${", "a**", "for(;;)", "a:", "async()=>", "class A extends ", "x.a", "a+", "<a>", "/*", "function f(){"},
		"shell":  {"(", "[", "{ ", "$(", "\"$(", "$((", "((", "((-", "((1?", "`", "if ", "while ", "! ", "a[", "<(", "${a:-", "time ", "coproc ", "f() ", "case x in x) ", "a|", "a&&", "[[ ! ", "[[ ( ", "a=("},
	} {
		for _, unit := range units {
			r := check[language](strings.Repeat(unit, 1_000_000/len(unit)), validate.Options{Fix: true})
			if r.Valid || len(r.Issues) == 0 {
				t.Errorf("%s %q: got a valid program", language, unit)
			}
		}
	}
}

// TestChainsAreRefused: programs without a syntax error, in which each operator makes the tree
// a level deeper, are refused before they are parsed.
func TestChainsAreRefused(t *testing.T) {
	defer debug.SetMaxStack(debug.SetMaxStack(256 << 20))
	check := checkers(t)
	type chain struct{ head, unit, tail string }
	for language, chains := range map[sandboxmcp.Language][]chain{
		"node": {{"a", ".b", ""}, {"a", "()", ""}, {"a", "[0]", ""}, {"a", "+1", ""}, {"a", "?.b", ""}, {"a", "``", ""}, {"if(a);", "else if(a);", ""}, {"var ", "[", "a"}, {"var ", "[", "@"}, {"(", "[", "])=>1"}, {"var ", "{a:", "b"}},
		"shell": {
			{"a", "|a", ""},
			{"a", "&&a", ""},
			{"a", "||a", ""},
			{"a", "|&a", ""},
			{"((1", "**1", "))"},
			{"((1", ",1", "))"},
			{"((1", "<1", "))"},
			{"((1", "<<1", "))"},
			{"((1", "&1", "))"},
			{"((1", "/1", "))"},
			{"((1", "%1", "))"},
			{"((1", "|1", "))"},
			{"((1", "^1", "))"},
			{"let a", ",a", ""},
			{"((", "a=", "1))"},
			{"[[ a", " && a", " ]]"},
			{"[[ a", " || a", " ]]"},
			{"((", "a?b:", "c))"},
			{"${a:", "1*", "1}"},
		},
	} {
		for _, c := range chains {
			r := check[language](c.head+strings.Repeat(c.unit, 1_000_000/len(c.unit))+c.tail, validate.Options{})
			if r.Valid || len(r.Issues) == 0 || r.Issues[0].Rule != "too-deep" {
				t.Errorf("%s %q: got valid %v, %.3v; want it refused as too deep", language, c.unit, r.Valid, r.Issues)
			}
			if r := check[language](c.head+strings.Repeat(c.unit, 20)+c.tail, validate.Options{}); len(r.Issues) > 0 && r.Issues[0].Rule == "too-deep" {
				t.Errorf("%s %q: 20 of it are refused", language, c.unit)
			}
		}
	}
}

// TestLongProgramsTakeOneParser: esbuild takes quadratic time for some programs, so it does
// not parse a long one. Its error, that a name is declared twice, is then not found.
func TestLongProgramsTakeOneParser(t *testing.T) {
	node := checkers(t)["node"]
	if r := node("class A { #a; #a }", validate.Options{}); r.Valid {
		t.Error("a short program with a name declared twice: got it valid")
	}
	for _, unit := range []string{"#a;", "#a\n", "#a = 'b / c';"} {
		if r := node("class A {"+strings.Repeat(unit, 20_000)+"}", validate.Options{}); !r.Valid {
			t.Errorf("%q: got %.3v, want that esbuild did not parse it", unit, r.Issues)
		}
	}
	if r := node(strings.Repeat("let a = 'b';\n", 20_000)+"eval('1'); (", validate.Options{}); r.Valid {
		t.Error("a syntax error at the end of a long program was not found")
	}
}

// TestFunctionsInFunctions: each command of a script is looked at once, however many functions are
// around it. Once for each of them would take an hour here.
func TestFunctionsInFunctions(t *testing.T) {
	const deep = 9000
	r := validate.Shell(strings.Repeat("f(){ ", deep)+"g(){ g|h|g&}; f(){ f|f& };"+strings.Repeat("a;", 400_000)+strings.Repeat("};", deep), validate.Options{})
	if !r.Valid || len(r.Issues) != 1 || r.Issues[0].Rule != "fork bomb detected" || r.Issues[0].Col != 5*deep+15 {
		t.Errorf("got valid %v, %.3v; want the innermost f alone", r.Valid, r.Issues)
	}
}

// TestNamesInScopes: the parser has an entry for each name in each scope around it. A program of many
// names in many scopes is not parsed; its dangerous calls are found.
func TestNamesInScopes(t *testing.T) {
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "y%d;", i)
		}
		return b.String() + "eval(1);"
	}
	nested := func(open, middle, end string) string {
		return strings.Repeat(open, 900) + middle + strings.Repeat(end, 900)
	}
	var pairs strings.Builder
	for i := range 60 {
		for j := range 60 {
			fmt.Fprintf(&pairs, `\u{%x}\u{%x};`, 'A'+i%26, 0x4e00+i*60+j)
		}
	}
	node := checkers(t)["node"]
	for what, code := range map[string]string{
		"blocks":                  nested("{let x;", many(3000), "}"),
		"functions":               nested("function f(){", many(3000), "}"),
		"arrows":                  nested("a=>(", strings.ReplaceAll(many(3000), ";", ","), "1)"),
		"loops":                   nested("for(;;)if(1);else ", "{"+many(3000)+"}", ""),
		"brackets in an r.e.":     nested("{if(1)/}/;", many(3000), "}"),
		"brackets behind a block": nested("{{}/}/;", many(3000), "}"),
		"names of few escapes":    nested("{", pairs.String()+"eval(1);", "}"),
		"names with escapes":      nested("{", strings.ReplaceAll(many(3000), "y", `\u{61}\u0061`), "}"),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := node(code, validate.Options{})
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 100 || !r.Valid || len(r.Issues) != 1 {
			t.Errorf("%s: got valid %v, %.3v, and %d MiB were allocated; want eval alone, and less than 100", what, r.Valid, r.Issues, got)
		}
	}
	for what, code := range map[string]string{
		"many names":  many(200_000) + "(",
		"many scopes": nested("{let x;", many(500), "}") + "(",
		"a module":    strings.Repeat("{const f = (a) => { for (const b of a) { if (b) { return `${b}` } } }; f(2 / 3);}\n", 5000) + many(5000) + "(",
	} {
		if r := node(code, validate.Options{}); r.Valid {
			t.Errorf("%s: got a valid program, want the syntax error", what)
		}
	}
}

// TestManyFindingsAreFew: code of dangerous calls alone is reported in seconds.
func TestManyFindingsAreFew(t *testing.T) {
	for language, code := range map[sandboxmcp.Language]string{"node": "eval(1);", "shell": "eval a;", "python": "!ls\n"} {
		r := checkers(t)[language](strings.Repeat(code, 1_000_000/len(code)), validate.Options{})
		if n := len(r.Issues); !r.Valid || n < 100 || n > 200 {
			t.Errorf("%s: got %d issues, valid %v; want 100 to 200", language, n, r.Valid)
		}
	}
}

// TestLargeCodeIsChecked: code that is long but not deep is checked to its end.
func TestLargeCodeIsChecked(t *testing.T) {
	check := checkers(t)
	for language, c := range map[sandboxmcp.Language]struct{ line, last string }{
		"python": {"print(f(1)[0], {'a': (1, 2)})\n", "eval('1')"},
		"node":   {"console.log(f(1)[0], {a: (1, 2)});\n", "eval('1')"},
		"shell":  {"if [ \"$(f 1)\" = a ]; then echo \"${b[0]}\" | g; fi\n", "eval 1"},
	} {
		r := check[language](strings.Repeat(c.line, 2000)+c.last, validate.Options{Fix: true})
		if !r.Valid || len(r.Issues) != 1 || r.Issues[0].Line != 2001 {
			t.Errorf("%s: got valid %v, issues %v; want eval in line 2001", language, r.Valid, r.Issues)
		}
	}
}
