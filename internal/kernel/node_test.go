package kernel_test

import (
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
		{name: "cjs", file: "a.cjs", code: "console.log(typeof require)", stdout: "function\n"},
		{name: "no extension", file: "bang", code: "#!/usr/bin/env node\nconsole.log(5)", stdout: "5\n"},
		{name: "error", code: "\nnull.x", exit: 1, stderr: "main.js:2", err: &sandboxmcp.ProgramError{Name: "TypeError", Value: "Cannot read properties of null (reading 'x')"}},
		{name: "error in module", code: "import 'fs'\nnull.x", exit: 1, stderr: "main.js:2", err: &sandboxmcp.ProgramError{Name: "TypeError", Value: "Cannot read properties of null (reading 'x')"}},
		{name: "rejection", code: "Promise.reject(new RangeError('r'))", exit: 1, stderr: "RangeError: r", err: &sandboxmcp.ProgramError{Name: "RangeError", Value: "r"}},
		{name: "thrown number", code: "throw 5", exit: 1, stderr: "5", err: &sandboxmcp.ProgramError{Name: "number", Value: "5"}},
		{name: "syntax", code: "let x = ;", exit: 1, stderr: "main.js:1", err: &sandboxmcp.ProgramError{Name: "SyntaxError", Value: "Unexpected token ';'"}},
		{name: "handled", code: "process.on('uncaughtException', e => console.log('handled', e.message)); null.x", stdout: "handled Cannot read properties of null (reading 'x')\n"},
		{name: "exit", code: "process.exit(3)", exit: 3},
		{name: "missing module", code: "require('./nothing')", exit: 1, stderr: "Cannot find module './nothing'", err: &sandboxmcp.ProgramError{Name: "Error", Value: "Cannot find module './nothing'\nRequire stack:\n- /run/program/main.js"}},
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
				t.Errorf("exit %d, stdout %q, stderr %q", o.Code, o.Stdout, o.Stderr)
			}
			if strings.Contains(o.Stderr, ".hook.cjs") {
				t.Errorf("frames of ours: %s", o.Stderr)
			}
			if o.Error != nil {
				if len(o.Error.Traceback) == 0 || strings.Contains(strings.Join(o.Error.Traceback, "\n"), ".hook.cjs") {
					t.Errorf("traceback %q", o.Error.Traceback)
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
			t.Errorf("%s: %s", c.version, d)
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
			t.Errorf("%s: %+v", sh, o)
		}
	}
}
