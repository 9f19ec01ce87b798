package kernel_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

func node(t *testing.T) (path, version string) {
	t.Helper()
	path, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node here")
	}
	out, err := exec.CommandContext(t.Context(), path, "--version").Output()
	if err != nil {
		t.Skip(err)
	}
	return path, strings.TrimPrefix(strings.TrimSpace(string(out)), "v")
}

func TestNode(t *testing.T) {
	path, version := node(t)
	for _, c := range []struct {
		name, file, code, stdout, stderr string
		exit                             int
		err                              *sandboxmcp.ProgramError // without traceback
	}{
		{name: "prints", code: "console.log(1, __filename, process.cwd(), require.main === module)", stdout: "1 /run/program/main.js /mnt/data true\n"},
		{name: "module in js", code: "import fs from 'fs'\nconst x = await Promise.resolve(3)\nconsole.log(x, typeof fs.readFileSync)\nexport default 1", stdout: "3 function\n"},
		{name: "module in mjs", file: "a.mjs", code: "console.log(typeof require, await 4)", stdout: "undefined 4\n"},
		{name: "require beside await", code: "await 1\nconst fs = require('fs'), { x } = require('./helper')\nconsole.log(typeof fs.readFileSync, x, require('dep').y, __filename, __dirname, require.main === module)", stdout: "function 7 8 /run/program/main.js /run/program true\n"},
		{name: "require beside import", code: "import os from 'os'\nimport { createRequire } from 'module'\nconst path = require('path')\nconsole.log(typeof os.cpus, path.sep, typeof createRequire(import.meta.url))", stdout: "function / function\n"},
		{name: "own require beside import", code: "import { createRequire } from 'module'\nconst require = createRequire(import.meta.url), __filename = 'f'\nconsole.log(typeof require('fs').statSync, __filename)", stdout: "function f\n"},
		{name: "assigned names", code: "globalThis.require = 5\nmodule.exports = 1\nconsole.log(globalThis.require, Object.keys(globalThis).includes('module'))", stdout: "5 false\n"},
		{name: "cjs", file: "a.cjs", code: "console.log(typeof require)", stdout: "function\n"},
		{name: "no extension", file: "bang", code: "#!/usr/bin/env node\nconsole.log(5)", stdout: "5\n"},
		{name: "error", code: "\nnull.x", exit: 1, stderr: "main.js:2", err: &sandboxmcp.ProgramError{Name: "TypeError", Value: "Cannot read properties of null (reading 'x')"}},
		{name: "error in module", code: "import 'fs'\nnull.x", exit: 1, stderr: "main.js:2", err: &sandboxmcp.ProgramError{Name: "TypeError", Value: "Cannot read properties of null (reading 'x')"}},
		{name: "rejection", code: "Promise.reject(new RangeError('r'))", exit: 1, stderr: "RangeError: r", err: &sandboxmcp.ProgramError{Name: "RangeError", Value: "r"}},
		{name: "thrown number", code: "throw 5", exit: 1, stderr: "5", err: &sandboxmcp.ProgramError{Name: "number", Value: "5"}},
		{name: "syntax", code: "let x = ;", exit: 1, stderr: "main.js:1", err: &sandboxmcp.ProgramError{Name: "SyntaxError", Value: "Unexpected token ';'"}},
		{name: "handled", code: "process.on('uncaughtException', e => console.log('handled', e.message)); null.x", stdout: "handled Cannot read properties of null (reading 'x')\n"},
		{name: "exit", code: "process.exit(3)", exit: 3},
		{name: "missing module", code: "require('./nothing')", exit: 1, stderr: "Cannot find module './nothing'", err: &sandboxmcp.ProgramError{Name: "Error", Value: "Cannot find module './nothing'"}},
		{name: "module of the work dir", code: "console.log(require('./helper').x, require('dep').y)", stdout: "7 8\n"},
		{name: "own flags are gone", code: "console.log(process.execArgv)", stdout: "[]\n"},
		{name: "worker", code: "const {Worker} = require('worker_threads'); new Worker('console.log(\"w\")', {eval: true})", stdout: "w\n"},
		{name: "fork", code: "if (process.send) { process.send('hi'); process.disconnect() } else { require('child_process').fork(__filename).on('message', m => console.log(m)) }", stdout: "hi\n"},
		{name: "child has no channel", code: "console.log(require('child_process').execSync('ls /proc/self/fd').toString().split('\\n').includes('3') ? 'fds ' + require('child_process').execSync('readlink /proc/self/fd/3 || true') : 'none')", stdout: "none\n"},
		{name: "channel closed", code: "require('fs').closeSync(3); console.log('on'); null.x", stdout: "on\n", exit: 1, stderr: "TypeError"},
		{name: "channel flooded", code: "require('fs').writeSync(3, Buffer.alloc(3000000, 255)); console.log('on')", stdout: "on\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at := places{t.TempDir(), t.TempDir()}
			for name, text := range map[string]string{"helper.js": "exports.x = 7", "node_modules/dep/index.js": "exports.y = 8"} {
				_ = os.MkdirAll(filepath.Dir(filepath.Join(at.work, name)), 0o700)
				if err := os.WriteFile(filepath.Join(at.work, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			o := runIn(t, kernel.Program{Language: sandboxmcp.Node, Code: c.code, FileName: c.file, Interpreter: path, Version: version}, at)
			if c.name == "child has no channel" && (strings.HasPrefix(o.Stdout, "fds /proc") || o.Stdout == "fds \n") {
				o.Stdout = c.stdout // the directory that ls reads
			}
			if o.Stdout != c.stdout || o.Code != c.exit || !strings.Contains(o.Stderr, c.stderr) || c.stderr == "" && o.Stderr != "" {
				t.Errorf("got exit %d, stdout %q, stderr %q; want those of the case", o.Code, o.Stdout, o.Stderr)
			}
			if strings.Contains(o.Stderr, ".hook.cjs") {
				t.Errorf("stderr: got frames of the driver in %s, want the program's alone", o.Stderr)
			}
			if o.Error != nil {
				if len(o.Error.Traceback) == 0 || strings.Contains(strings.Join(o.Error.Traceback, "\n"), ".hook.cjs") {
					t.Errorf("traceback: got %q, want frames of the program alone", o.Error.Traceback)
				}
				o.Error.Traceback, o.Error.Value = nil, strings.ReplaceAll(o.Error.Value, at.program, "/run/program")
			}
			if d := cmp.Diff(c.err, o.Error); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestNodePlanByVersion(t *testing.T) {
	module, script := "// c\nimport fs from 'fs'\n", "const s = `\nimport x from 'y'\n`; /*\nexport default 1 */ import('fs')"
	for _, c := range []struct{ version, file, code, wantFlag, wantFile string }{
		{"22.7.0", "", module, "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", "main.js"},
		{"20.20.2", "", script, "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", "main.js"},
		{"20.11.0", "", module, "--experimental-detect-module", "main.js"},
		{"22.6.0", "", module, "--experimental-detect-module", "main.js"},
		{"18.19.0", "", module, "", "main.mjs"},
		{"18.19.0", "", script, "", "main.js"},
		{"18.19.0", "x.cjs", module, "", "x.cjs"},
		{"20.9.0", "", "export const x = 1", "", "main.mjs"},
		{"", "", "exporter()\nimportant\nimport.meta", "", "main.js"},
	} {
		p, err := kernel.Plan(kernel.Program{Language: sandboxmcp.Node, Code: c.code, FileName: c.file, Interpreter: "/usr/bin/node", Version: c.version})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"/usr/bin/node", "--require", "/run/program/.hook.cjs"}
		if c.wantFlag != "" {
			want = append(want, c.wantFlag)
		}
		if d := cmp.Diff(append(want, "/run/program/"+c.wantFile), p.Argv); d != "" {
			t.Errorf("%s (-want +got): %s", c.version, d)
		}
		if p.Program[0].Name != c.wantFile {
			t.Errorf("%s: file %s, want %s", c.version, p.Program[0].Name, c.wantFile)
		}
	}
}

func TestShell(t *testing.T) {
	for _, sh := range []string{"/bin/bash", "/bin/sh"} {
		if _, err := os.Stat(sh); err != nil {
			continue
		}
		o := run(t, kernel.Program{Language: sandboxmcp.Shell, Code: "echo \"$0 $PWD $HOME\"\nexit 4", Interpreter: sh})
		if o.Stdout != "/run/program/main.sh "+backend.WorkDir+" /tmp\n" || o.Code != 4 || o.Stderr != "" {
			t.Errorf("%s: got %+v, want its path, directories and exit code 4", sh, o)
		}
	}
}

// TestNodeDisplay: the last value of a program that is run once is shown, and the
// program is otherwise as one that shows nothing.
func TestNodeDisplay(t *testing.T) {
	path, version := node(t)
	type want struct {
		stdout  string
		results []sandboxmcp.RichResult
	}
	main := func(forms sandboxmcp.RichResult) []sandboxmcp.RichResult {
		forms["is_main_result"] = true
		return []sandboxmcp.RichResult{forms}
	}
	for _, c := range []struct {
		name, code string
		display    sandboxmcp.Display
		want       want
	}{
		{"sum", "1+1", "stdout", want{stdout: "2\n"}},
		{"sum to results", "1+1", "results", want{results: main(sandboxmcp.RichResult{"text/plain": "2"})}},
		{"none", "1+1", "", want{}},
		{"text", "const s = 'a'\ns + 'b';\n// the end\n", "stdout", want{stdout: "'ab'\n"}},
		{"one line", "const x = 41; x + 1 // sum", "stdout", want{stdout: "42\n"}},
		{"many lines", "const xs = [1, 2]\nxs\n  .map((x) => {\n    return x * 2;\n  })", "stdout", want{stdout: "[ 2, 4 ]\n"}},
		{"object", "const o = {a: [1]}\no", "results", want{results: main(sandboxmcp.RichResult{"text/plain": "{ a: [ 1 ] }", "application/json": json.RawMessage(`{"a":[1]}`)})}},
		{"null", "null", "stdout", want{stdout: "null\n"}},
		{"undefined", "undefined", "stdout", want{}},
		{"statement", "const x = 5", "stdout", want{}},
		{"not the last", "5\nconst x = 1", "stdout", want{}},
		{"loop", "const xs = []\nfor (const x of [1, 2]) {\n  xs.push(x);\n}", "stdout", want{}},
		{"loop without braces", "const xs = []\nfor (let i = 0; i < 2; i++)\n  xs.push(i)", "stdout", want{}},
		{"branch", "if (true) {\n  5\n}", "stdout", want{}},
		{"else", "if (false) 1\nelse 5", "stdout", want{}},
		{"function", "5\nfunction f() {}", "stdout", want{}},
		{"printed", "console.log('a')", "stdout", want{stdout: "a\n"}},
		{"written", "const {stdout} = process; stdout.write('a\\n')", "stdout", want{stdout: "a\n"}},
		{"timer", "setTimeout(() => console.log('late'), 1)", "stdout", want{stdout: "late\n"}},
		{"emitter", "new (require('events'))().on('x', () => {})", "stdout", want{}},
		{"promise", "const f = async () => 7\nf()", "stdout", want{stdout: "7\n"}},
		{"promise of nothing", "async function main() { console.log('in') }\nmain()", "stdout", want{stdout: "in\n"}},
		{"caught elsewhere", "const p = Promise.reject(new Error('x')); p.catch(() => console.log('caught'))\np", "stdout", want{stdout: "caught\n"}},
		{"module's names", "require.main === module && exports === module.exports && __filename.endsWith('main.js') && require('./helper').x", "stdout", want{stdout: "7\n"}},
		{"import()", "import('fs').then((m) => typeof m.readFileSync)", "stdout", want{}},
		{"ES module", "import fs from 'fs'\nconsole.log(typeof fs)\nawait 5", "stdout", want{stdout: "object\n"}},
		{"return", "console.log('a')\nreturn 5", "stdout", want{stdout: "a\n"}},
		{"forms of its own", "({toMIMEBundle: () => ({'text/html': '<b>x</b>'}), [require('util').inspect.custom]: () => 'x'})", "stdout", want{stdout: "x\n", results: main(sandboxmcp.RichResult{"text/plain": "x", "text/html": "<b>x</b>"})}},
		{"forms that fail", "({toMIMEBundle() { throw new Error('no') }})", "stdout", want{}},
		{"much", "Array(100).fill('x'.repeat(9000))", "results", want{}},
		{"stack", "const s = new Error('x').stack\ns.includes('.hook.cjs')", "stdout", want{stdout: "false\n"}},
		{"hashbang", "#!/usr/bin/env node\n6*7", "stdout", want{stdout: "42\n"}},
		{"after a print", "console.log(1); [2].concat(3)", "stdout", want{stdout: "1\n[ 2, 3 ]\n"}},
		{"two calls", "const xs = [3]; xs.push(4); xs.length", "stdout", want{stdout: "2\n"}},
		{"channel closed", "require('fs').closeSync(3); 5", "stdout", want{stdout: "5\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			at := places{t.TempDir(), t.TempDir()}
			if err := os.WriteFile(filepath.Join(at.work, "helper.js"), []byte("exports.x = 7"), 0o600); err != nil {
				t.Fatal(err)
			}
			o := runIn(t, kernel.Program{Language: sandboxmcp.Node, Code: c.code, Display: c.display, Interpreter: path, Version: version}, at)
			if o.Code != 0 || o.Stderr != "" {
				t.Errorf("got exit %d, stderr %q; want 0 and none", o.Code, o.Stderr)
			}
			if c.name == "much" && len(o.Results) == 1 { // what is cut is compared by its length
				got, _ := o.Results[0]["text/plain"].(string)
				if len(got) != 256<<10+4 || o.Results[0]["application/json"] != nil {
					t.Errorf("%d bytes, and json %v", len(got), o.Results[0]["application/json"] != nil)
				}
				return
			}
			if c.want.results == nil {
				c.want.results = []sandboxmcp.RichResult{}
			}
			if d := cmp.Diff(c.want, want{o.Stdout, o.Results}, cmp.AllowUnexported(want{})); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestNodeDisplayFails as a program that shows nothing does.
func TestNodeDisplayFails(t *testing.T) {
	path, version := node(t)
	for name, code := range map[string]string{
		"throws":    "const x = null\nx.y",
		"in a call": "function f() {\n  throw new RangeError('r')\n}\nf()",
		"rejects":   "async function f() {\n  throw new RangeError('r')\n}\nf()",
		"syntax":    "let x = ;\nx",
		"exit":      "process.exitCode = 3; 5\nprocess.exit()",
		"missing":   "require('./nothing')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := kernel.Program{Language: sandboxmcp.Node, Code: code, Interpreter: path, Version: version}
			want := run(t, p)
			p.Display = sandboxmcp.DisplayStdout
			got := run(t, p)
			if want.Code == 0 || got.Code != want.Code || got.Stdout != want.Stdout || (want.Error == nil) != (got.Error == nil) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if want.Error != nil && (got.Error.Name != want.Error.Name || got.Error.Traceback[0] != want.Error.Traceback[0]) {
				t.Errorf("got %+v, want %+v", got.Error, want.Error)
			}
			first, _, _ := strings.Cut(want.Stderr, "\n    at ")
			if !strings.HasPrefix(got.Stderr, first) || strings.Contains(got.Stderr, ".hook.cjs") {
				t.Errorf("stderr is %q, want %q", got.Stderr, want.Stderr)
			}
		})
	}
}

// TestNodeEnds: a program ends as it does without the driver. The driver ends node early if nothing of the program is left.
func TestNodeEnds(t *testing.T) {
	path, version := node(t)
	for name, code := range map[string]string{
		"nothing left":           "console.log(1)",
		"much output":            "process.stdout.write('x'.repeat(1 << 20)); process.stderr.write('y'.repeat(1 << 18))",
		"handler":                "process.on('exit', (code) => console.log('end', code))",
		"handler of once":        "process.once('exit', () => { process.exitCode = 5; console.log(process.listenerCount('exit')) })",
		"handler that fails":     "process.on('exit', () => { throw new RangeError('late') })",
		"later work":             "let n = 0; process.on('beforeExit', () => { if (n++ < 2) setTimeout(() => console.log(n), 1) })",
		"handler made late":      "process.on('beforeExit', () => process.on('exit', () => console.log('end')))",
		"code":                   "process.exitCode = 4; console.log(process.exitCode)",
		"code 0":                 "process.exitCode = 0; console.log(process.exitCode)",
		"exit":                   "setTimeout(() => { console.log('a'); process.exit() }, 1)",
		"exit with a code":       "process.exit(3)",
		"emit replaced":          "const emit = process.emit; process.emit = function (name, ...rest) { const is = emit.call(this, name, ...rest); console.log(name); return is }",
		"emit of all replaced":   "const p = require('events').prototype, emit = p.emit; p.emit = function (name, ...rest) { const is = emit.call(this, name, ...rest); if (this === process) require('fs').writeSync(1, name + '\\n'); return is }",
		"emit in place":          "console.log(process.emit === require('events').prototype.emit, Object.hasOwn(process, 'emit'), 'emit' in process, Object.keys(Object.getPrototypeOf(process)))",
		"emit set":               "process.emit = 5; console.log(Object.getOwnPropertyDescriptor(process, 'emit'), delete process.emit, typeof process.emit)",
		"emitted by the program": "console.log(process.emit('exit', 0)); console.log('after')",
		"reallyExit replaced":    "const exit = process.reallyExit; process.reallyExit = (code) => { console.log('really', code); exit.call(process, code) }; process.exit()",
		"domain":                 "const d = require('domain').create(); d.on('error', (e) => console.log(e.message)); d.run(() => { throw new Error('in') })",
		"uncaught":               "throw new RangeError('r')",
		"uncaught later":         "setTimeout(() => { throw new RangeError('r') }, 1)",
		"rejected":               "Promise.reject(new RangeError('r'))",
		"caught at last":         "process.on('uncaughtException', (e) => console.log(e.message)); throw new RangeError('r')",
		"waits for ever":         "import('fs').then(() => {}); await new Promise(() => {})",
		"worker":                 "const { Worker } = require('worker_threads'); new Worker('process.on(\"exit\", () => require(\"fs\").writeSync(1, \"w\"))', { eval: true })",
		"worker that goes on":    "const { Worker } = require('worker_threads'); new Worker('setInterval(() => {}, 1000)', { eval: true }).unref(); console.log(1)",
		"child":                  "require('child_process').spawn('sh', ['-c', 'echo a'], { stdio: 'inherit' })",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "main.js")
			if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, failed bytes.Buffer
			bare := exec.CommandContext(t.Context(), path, "--disable-warning=MODULE_TYPELESS_PACKAGE_JSON", file)
			bare.Env, bare.Stdout, bare.Stderr = []string{"PATH=/usr/bin:/bin"}, &out, &failed
			_ = bare.Run() // its code is compared
			got := run(t, kernel.Program{Language: sandboxmcp.Node, Code: code, Interpreter: path, Version: version})
			if got.Code != bare.ProcessState.ExitCode() || got.Stdout != out.String() {
				t.Errorf("exit %d and %.200q, want as without a driver: %d and %.200q", got.Code, got.Stdout, bare.ProcessState.ExitCode(), out.String())
			}
			if a, b := strings.Count(got.Stderr, "\n"), strings.Count(failed.String(), "\n"); len(got.Stderr) == 0 != (failed.Len() == 0) || a != b {
				t.Errorf("stderr is %.2000q, want as without a driver: %.2000q", got.Stderr, failed.String())
			}
		})
	}
}
