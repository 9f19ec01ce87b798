package kernel_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/kernel"
)

// One interpreter for each row, cells one after the other; what the last one says.
type cellRow struct {
	cells   []string
	stdout  string
	results []sandboxmcp.RichResult
	err     string // name of the exception
	stderr  string // a part of it
	exit    int
}

func checkCells(t *testing.T, p kernel.Program, row cellRow) {
	t.Helper()
	l := begin(t, p)
	var s said
	for _, code := range row.cells {
		if s = l.do(t, kernel.Cell{Code: code, Display: sandboxmcp.DisplayResults}); s.Err != nil {
			t.Fatalf("%s: got %v; stderr %q, want no error", code, s.Err, s.Stderr)
		}
	}
	name := ""
	if s.Error != nil {
		name = s.Error.Name
	}
	if s.Stdout != row.stdout || s.Exit != row.exit || name != row.err || !strings.Contains(s.Stderr, row.stderr) || row.stderr == "" && row.err == "" && s.Stderr != "" {
		t.Errorf("got exit %d, error %q, stdout %q, stderr %q; want those of the case", s.Exit, name, s.Stdout, s.Stderr)
	}
	if d := cmp.Diff(append([]sandboxmcp.RichResult{}, row.results...), s.Results); d != "" {
		t.Error(d)
	}
	if strings.Contains(s.Stderr, ".session.") {
		t.Errorf("stderr: got frames of the driver in %s, want the cell's alone", s.Stderr)
	}
	if again := l.do(t, kernel.Cell{Code: "1"}); again.Err != nil {
		t.Errorf("the next cell: got %v, want nil", again.Err)
	}
}

func TestNodeCells(t *testing.T) {
	path, version := node(t)
	rejects := "Promise.reject(new TypeError('r'))"
	for name, row := range map[string]cellRow{
		"state": {cells: []string{"const y = 40; let z = 1; function f() { return y + z }", "z = 2; console.log(f())"}, stdout: "42\n"},
		"replaced functions": { // test libraries replace them, and a program may leave them so
			cells: []string{
				"for (const name of ['setTimeout', 'setInterval', 'setImmediate', 'clearTimeout', 'clearInterval']) globalThis[name] = () => {}; performance.now = () => 0; require('fs').writeSync = () => 0; 1",
				"let found; require('fs').stat('/', () => found = 40); await new Promise(r => require('fs').stat('/', r)); found + 2",
			},
			results: text("42"),
		},
		"error, replaced":   {cells: []string{"require('fs').writeSync = () => 0; 1", "throw 5"}, err: "number", exit: 1, stderr: "Uncaught 5\n"},
		"declared again":    {cells: []string{"const x = 1; class A {}; let {b} = {b: 1}", "const x = 2; class A { c() {} }; let [b] = [4]", "x + b"}, results: text("6")},
		"value":             {cells: []string{"console.log('out'); 6 * 7"}, stdout: "out\n", results: text("42")},
		"no value":          {cells: []string{"undefined"}},
		"empty":             {cells: []string{""}},
		"comment at end":    {cells: []string{"5 // five"}, results: text("5")},
		"plain object":      {cells: []string{"({a: [1]})"}, results: []sandboxmcp.RichResult{{"text/plain": "{ a: [ 1 ] }", "application/json": json.RawMessage(`{"a":[1]}`), "is_main_result": true}}},
		"object of a class": {cells: []string{"new Map([[1, 2]])"}, results: text("Map(1) { 1 => 2 }")},
		"large object":      {cells: []string{"Array(300000).fill(1).length + Array(5).length"}, results: text("300005")},
		"await":             {cells: []string{"const x = await new Promise(r => setTimeout(r, 5, 8)); x"}, results: text("8")},
		"promise":           {cells: []string{"Promise.resolve(7)"}, results: text("7")},
		"own forms":         {cells: []string{"({toMIMEBundle: () => ({'text/html': '<b>', 'text/plain': 'b', 'image/png': Buffer.from('a')})})"}, results: []sandboxmcp.RichResult{{"text/plain": "b", "text/html": "<b>", "image/png": "YQ==", "is_main_result": true}}},
		"display":           {cells: []string{"const {display} = require('sandbox'); display(5); undefined"}, results: []sandboxmcp.RichResult{{"text/plain": "5", "is_main_result": false}}},
		"exception":         {cells: []string{"function f() {\n  null.x }", "\nf()"}, err: "TypeError", exit: 1, stderr: "TypeError: Cannot read properties of null (reading 'x')\n    at f (cell-1.js:2:8)\n    at cell-2.js:2:1\n"},
		"after exception":   {cells: []string{"let x = 1; null.x", "x"}, results: text("1")},
		"thrown number":     {cells: []string{"throw 5"}, err: "number", exit: 1, stderr: "Uncaught 5\n"},
		"awaited rejection": {cells: []string{"await " + rejects}, err: "TypeError", exit: 1, stderr: "TypeError: r\n"},
		"rejection":         {cells: []string{rejects + "; 1"}, err: "TypeError", exit: 1, stderr: "TypeError: r\n", results: text("1")},
		"after rejection":   {cells: []string{"let x = 3; " + rejects + "; 1", "x"}, results: text("3")},
		"error in timer":    {cells: []string{"setTimeout(() => { throw new RangeError('t') }, 1); 1"}, err: "RangeError", exit: 1, stderr: "RangeError: t\n    at", results: text("1")},
		"syntax":            {cells: []string{"let a = 1\nlet z = ;"}, err: "SyntaxError", exit: 1, stderr: "cell-1.js:2\nlet z = ;\n        ^\n\nSyntaxError: Unexpected token ';'\n"},
		"syntax at end":     {cells: []string{"f("}, err: "SyntaxError", exit: 1, stderr: "cell-1.js:1\nf(\n  ^\n\nSyntaxError"},
		"exit":              {cells: []string{"let a = 1; process.exit(3); a = 2"}, exit: 3},
		"after exit":        {cells: []string{"let a = 1; process.exit(3)", "a"}, results: text("1")},
		"exit later":        {cells: []string{"setTimeout(() => process.exit(4), 1); undefined"}, exit: 4},
		"exit in a catch":   {cells: []string{rejects + ".catch(() => process.exit(2))"}, exit: 2},
		"exit that is held": {cells: []string{"try { process.exit(5) } catch {}"}, exit: 5},
		"exit code":         {cells: []string{"process.exitCode = 6; undefined"}, exit: 6},
		"exit code is once": {cells: []string{"process.exitCode = 6; undefined", "1"}, results: text("1")},
		"timer":             {cells: []string{"setTimeout(() => console.log('late'), 10); undefined"}, stdout: "late\n"},
		"child":             {cells: []string{"require('child_process').exec('echo kid', (e, o) => console.log(o.trim())); undefined"}, stdout: "kid\n"},
		"threads of ours":   {cells: []string{"require('crypto').pbkdf2('a', 'b', 9, 32, 'sha512', (e, k) => console.log(k.length)); undefined"}, stdout: "32\n"},
		"main not awaited":  {cells: []string{"async function main() { await null; console.log('m') }\nmain(); undefined"}, stdout: "m\n"},
		"server goes on":    {cells: []string{"const s = require('http').createServer((q, r) => r.end('ok')).listen(0, '127.0.0.1'); undefined", "await (await fetch('http://127.0.0.1:' + s.address().port)).text()"}, results: text("'ok'")},
		"interval goes on":  {cells: []string{"let n = 0; const i = setInterval(() => n++, 1); undefined", "while (n < 3) await new Promise(r => setTimeout(r, 1)); clearInterval(i); n >= 3"}, results: text("true")},
		"never settled":     {cells: []string{"await new Promise(() => {})"}, exit: 13, stderr: "unsettled top-level await"},
		"large output":      {cells: []string{"process.stdout.write('y'.repeat(300000)); undefined"}, stdout: strings.Repeat("y", 300000)},
		"require":           {cells: []string{"require('path').basename(__filename) + require.main.id.length + (require.main === module)"}, results: text("'cell.js1true'")},
		"dynamic import":    {cells: []string{"(await import('fs/promises')).readFile.name + typeof import('fs')"}, results: text("'readFileobject'")},
		"static import":     {cells: []string{"import fs, {readFileSync as r} from 'fs'\nimport * as p from \"path\"\nimport {\n  sep\n} from 'path'\nthrow new Error(typeof fs.stat + r.name + p.sep + sep)"}, err: "Error", exit: 1, stderr: "Error: functionreadFileSync//\n    at cell-1.js:6:7\n"},
		"import in a text":  {cells: []string{"const s = \"import('a')\", r = /import(\"b)/; `${typeof import('fs')} import('c') ${s}` + r.source // import x from 'y'"}, results: text("`object import('c') import('a')import(\"b)`")},
		"import.meta":       {cells: []string{"import.meta.url.slice(0, 8) + require('path').basename(import.meta.filename)"}, results: text("'file:///cell.js'")},
		"no such import":    {cells: []string{"import x from 'nothing-there'"}, err: "Error", exit: 1, stderr: "Cannot find package 'nothing-there'"},
		"own flags":         {cells: []string{"process.execArgv.length"}, results: text("0")},
		"fork":              {cells: []string{"require('fs').writeFileSync('k.js', 'process.send(process.execArgv.length)'); await new Promise(r => require('child_process').fork('./k.js').on('message', r))"}, results: text("0")},
		"worker":            {cells: []string{"await new Promise(r => new (require('worker_threads').Worker)('require(\"worker_threads\").parentPort.postMessage(4)', {eval: true}).on('message', r))"}, results: text("4")},
		"no channel":        {cells: []string{"require('child_process').execSync('if { true >&3; } 2>/dev/null; then echo open; else echo closed; fi').toString()"}, results: text(`'closed\n'`)},
		"hash bang":         {cells: []string{"#!/usr/bin/env node\n5"}, results: text("5")},
		"directory":         {cells: []string{"require('fs').mkdirSync('d'); process.chdir('d'); undefined", "require('path').basename(process.cwd()) + require('path').basename(__dirname)"}, results: text("'dd'")},
		"closed streams":    {cells: []string{"require('fs').closeSync(0); 4"}, results: text("4")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkCells(t, kernel.Program{Language: sandboxmcp.Node, Interpreter: path, Version: version}, row)
		})
	}
}

func TestNodeInterrupt(t *testing.T) {
	path, version := node(t)
	for _, code := range []string{
		"begun(); while (true) {}",
		"begun(); for (;;) { try { while (true) {} } catch {} }",
		"await 0; begun(); while (true) {}",
		"setTimeout(() => { begun(); while (true) {} }, 1); 1",
		"process.nextTick(() => { begun(); while (true) {} }); 1",
		"Promise.resolve().then(() => { begun(); while (true) {} }); 1",
		"begun(); await new Promise(r => setTimeout(r, 60000))",
		"begun(); await require('timers/promises').setTimeout(60000)",
		"begun(); for (;;) await null",
		"begun(); setInterval(() => { globalThis.ticks++ }, 1); await new Promise(() => {})",
		"begun(); require('child_process').execSync('sleep 60')",
		"begun(); await new Promise(r => require('child_process').exec('sleep 60', r))",
		"begun(); await new Promise(r => require('net').createServer().listen(0, '127.0.0.1'))",
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			l := begin(t, kernel.Program{Language: sandboxmcp.Node, Interpreter: path, Version: version})
			l.do(t, kernel.Cell{Code: "globalThis.kept = 7; globalThis.ticks = 0; await new Promise(r => setTimeout(r, 2000))"}) // the thread that watches has begun
			s := l.whenBegun(t, strings.ReplaceAll(code, "begun()", "require('fs').writeFileSync('begun', '')"), func() { l.interrupt(t) })
			if s.Err != nil || s.Exit != 130 || s.Error == nil || s.Error.Name != "Interrupted" {
				t.Fatalf("an interrupted cell: got %+v, want Interrupted and 130", s)
			}
			// what was left has to live through the collection of its garbage
			s = l.do(t, kernel.Cell{Code: "for (let i = 0, a = []; i < 2e6; i++) a.push({i}); [kept, ticks === (await new Promise(r => setTimeout(r, 20)), ticks)] + ''", Display: sandboxmcp.DisplayResults})
			if d := cmp.Diff(text("'7,true'"), s.Results); d != "" || s.Err != nil || s.Exit != 0 {
				t.Errorf("the next cell: got %v %s %s, want 7,true", s.Err, d, s.Stderr)
			}
			l.interrupt(t) // between two it does nothing
			if s = l.py(t, "kept"); s.Err != nil || s.Exit != 0 && s.Exit != 130 {
				t.Errorf("the cell after it: got %+v, want an answer", s)
			}
		})
	}
}

// whenBegun runs a cell, and calls f when it has made the file "begun".
func (l *live) whenBegun(t *testing.T, code string, f func()) said {
	t.Helper()
	done := make(chan said, 1)
	go func() { done <- l.do(t, kernel.Cell{Code: code, Display: sandboxmcp.DisplayResults}) }()
	if early := l.awaitBegun(done); early != nil {
		return *early
	}
	f()
	return <-done
}

func TestNodeInputAndEnvironment(t *testing.T) {
	path, version := node(t)
	l := begin(t, kernel.Program{Language: sandboxmcp.Node, Interpreter: path, Version: version})
	for _, c := range []struct {
		cell kernel.Cell
		want string
	}{
		{kernel.Cell{Code: "console.log(require('fs').readFileSync(0, 'utf8').length)"}, "0\n"},
		{kernel.Cell{Code: "console.log(JSON.stringify(require('fs').readFileSync(0, 'latin1')))", Stdin: []byte("a\x00b\xff\n")}, "\"a\\u0000bÿ\\n\"\n"},
		{kernel.Cell{Code: "for await (const l of require('readline').createInterface({input: process.stdin})) console.log(l)", Stdin: []byte("1\n2\n")}, "1\n2\n"},
		{kernel.Cell{Code: "require('child_process').execSync('cat', {stdio: 'inherit'})", Stdin: []byte("kid\n")}, "kid\n"},
		{kernel.Cell{Code: "console.log(require('fs').readFileSync(0, 'utf8').length)"}, "0\n"},
		{kernel.Cell{Code: "console.log(process.env.Q, process.env.USER); process.env.Q = 'other'", Env: map[string]string{"Q": "1", "USER": "me"}}, "1 me\n"},
		{kernel.Cell{Code: "console.log(process.env.Q, process.env.USER)"}, "undefined sandbox\n"},
		{kernel.Cell{Code: "'shown'", Display: sandboxmcp.DisplayStdout}, "'shown'\n"},
		{kernel.Cell{Code: "'not shown'"}, ""},
	} {
		if s := l.do(t, c.cell); s.Err != nil || s.Stdout != c.want || s.Exit != 0 || len(s.Results) != 0 {
			t.Errorf("%s: %+v, want %q", c.cell.Code, s, c.want)
		}
	}
}

func TestNodeSandboxModule(t *testing.T) {
	path, version := node(t)
	at := places{t.TempDir(), t.TempDir()}
	if err := os.Mkdir(filepath.Join(at.program, "bridge"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at.program, "bridge", "given.json"), []byte(`{"v":42}`), 0o600); err != nil {
		t.Fatal(err)
	}
	l := beginIn(t, kernel.Program{Language: sandboxmcp.Node, Interpreter: path, Version: version, Env: map[string]string{"SANDBOX_POLICY": `{"network":"some"}`}}, at)
	for _, c := range []struct{ code, want string }{
		{"import {bridge, policy} from 'sandbox'; console.log(bridge.given.v, policy.network, bridge.none, 'given' in bridge)", "42 some undefined true\n"},
		{"bridge.back = [1, 2]; console.log(Object.keys(bridge).join())", "back,given\n"},
		{"bridge.given = 1; console.log(require('sandbox').bridge.given); delete bridge.given; console.log(bridge.given.v)", "1\n42\n"},
		{"for (const f of [() => { bridge['../x'] = 1 }, () => { bridge.f = () => 1 }, () => { delete bridge.given }]) try { f(); console.log('?') } catch (e) { console.log(e.name) }", "TypeError\nTypeError\nTypeError\n"},
	} {
		if s := l.do(t, kernel.Cell{Code: c.code}); s.Err != nil || s.Stdout != c.want {
			t.Errorf("%s: %q, want %q; %v %s", c.code, s.Stdout, c.want, s.Err, s.Stderr)
		}
	}
	got, err := os.ReadFile(filepath.Join(at.work, ".bridge", "back.json"))
	if err != nil || string(got) != "[1,2]" {
		t.Errorf("put out: %q, %v", got, err)
	}
	if left, _ := filepath.Glob(filepath.Join(at.work, ".bridge", ".*")); len(left) > 0 {
		t.Errorf("temporary files: got %q, want none", left)
	}
}

// A cell that shows without end keeps its session.
func TestNodeShowsNoMoreThanIsTaken(t *testing.T) {
	path, version := node(t)
	l := begin(t, kernel.Program{Language: sandboxmcp.Node, Interpreter: path, Version: version})
	for _, code := range []string{
		"const { display } = require('sandbox'); for (let i = 0; i < 60; i++) display({ toMIMEBundle: () => ({ 'text/html': 'x'.repeat(900000) }) })",
		"require('sandbox').display(5)",
	} {
		s := l.do(t, kernel.Cell{Code: code, Display: sandboxmcp.DisplayResults})
		if s.Err != nil || !s.Done || s.Exit != 0 || len(s.Results) == 0 {
			t.Errorf("%s: got %v, done %v, exit %d, %d results, %s; want done, 0 and results", code, s.Err, s.Done, s.Exit, len(s.Results), s.Stderr)
		}
	}
}

// A signal that comes before a cell does not interrupt it, even if the event loop sees both at once.
func TestNodeIsNotInterruptedByAnEarlierSignal(t *testing.T) {
	path, version := node(t)
	l := begin(t, kernel.Program{Language: sandboxmcp.Node, Interpreter: path, Version: version})
	l.do(t, kernel.Cell{Code: "1"})
	for range 5 {
		_ = l.cmd.Process.Signal(syscall.SIGSTOP)
		_ = l.cmd.Process.Signal(syscall.SIGINT)
		done := make(chan said)
		go func() { done <- l.do(t, kernel.Cell{Code: "console.log('ran')"}) }()
		time.Sleep(20 * time.Millisecond) // until the cell is written; if that takes longer, the test shows nothing
		_ = l.cmd.Process.Signal(syscall.SIGCONT)
		if s := <-done; s.Err != nil || s.Exit != 0 || s.Stdout != "ran\n" {
			t.Errorf("got %v, exit %d, %q %q; want a cell that ran", s.Err, s.Exit, s.Stdout, s.Stderr)
		}
	}
}
