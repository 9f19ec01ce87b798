package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// aheadPrograms are run by an interpreter that was started for them, and by one
// that was started before: what a caller sees is the same.
var aheadPrograms = map[sandboxmcp.Language]map[string]string{
	sandboxmcp.Shell: {
		"Print":       "echo a; printf '%s\n' b >&2",
		"Exit":        "exit 7",
		"Failure":     "set -e; false; echo not here",
		"Syntax":      "echo 1\nif then",
		"Undefined":   "set -u; echo $nothing",
		"Variables":   "set | grep -v -e ^PPID -e ^BASH_ARGC -e ^PIPESTATUS -e ^SECONDS -e ^RANDOM -e ^SRANDOM -e ^EPOCH -e ^BASHPID",
		"Declared":    "declare -p | grep -v -e PPID -e BASH_ARGC -e PIPESTATUS -e SECONDS -e RANDOM -e EPOCH -e BASHPID; declare -F; alias",
		"Options":     "shopt; set -o; echo $-; trap; umask; ulimit -a",
		"Arguments":   `echo "$0 $# $* $_ $? $LINENO ${BASH_SOURCE[*]} ${#FUNCNAME[@]} $BASH $SHLVL $PWD $OLDPWD"`,
		"Environment": "env | sort; cat /proc/self/environ | tr '\\0' '\\n' | sort",
		"Descriptors": "ls /proc/self/fd; ls /proc/$$/fd; cat <&3",
		"Input":       "cat; read x; echo $? [$x]",
		"Seconds":     "echo $((SECONDS > 1)); [ -z \"$REPLY\" ] && echo none",
		"Children":    "sh -c 'echo $PPID; env | grep -c BASH_ENV'; bash -c 'echo $BASH_ENV $SHLVL'; (exit 3); echo $?",
		"Background":  "sleep 60 & echo $!; jobs; kill %1; wait; echo $?",
		"Signal":      "kill -TERM $$; echo not here",
		"Functions":   "f() { echo ${FUNCNAME[0]} ${BASH_LINENO[0]} $LINENO; return 4; }; f; echo $?; caller; g() { caller; }; g",
		"Traps":       "trap 'echo bye' EXIT; trap 'echo err $LINENO' ERR; false; echo on",
		"Files":       "echo kept > out.txt; ls -l out.txt | cut -c1-10; ls /run/program",
		"Here":        "cat <<X\na\nX\nwc -l < \"$0\"",
		"BigOutput":   "head -c 3000000 /dev/zero | tr '\\0' x",
		"Random":      "[ $RANDOM != $RANDOM ] && echo differ",
		"Process":     "echo $$ $BASHPID; cut -d' ' -f5,6 /proc/self/stat | sed \"s/$$/me/g\"; tr '\\0' ' ' < /proc/$$/cmdline",
	},
	sandboxmcp.Node: {
		"Print":       "console.log('a', 1.5, [2]); console.error('b')",
		"Exit":        "process.exit(7)",
		"ExitCode":    "process.exitCode = 3; process.on('exit', (c) => console.log('exit', c)); process.on('beforeExit', () => console.log('before'))",
		"Throw":       "function f() { throw new RangeError('x') }\nf()",
		"ThrowOther":  "throw {a: 1}",
		"Rejection":   "Promise.reject(new Error('lost'))",
		"Syntax":      "console.log(1",
		"Caught":      "process.on('uncaughtException', (e) => console.log('caught', e.message)); throw new Error('x')",
		"Arguments":   "console.log(process.argv, process.execArgv, process.execPath, __filename, __dirname, process.title, process.argv0, require.main === module, module.paths, module.parent, process.cwd())",
		"Environment": "console.log(process.env); console.log(require('child_process').execSync('env | sort').toString())",
		"Globals":     "console.log(Object.getOwnPropertyNames(globalThis).sort().join(), Object.keys(require.cache), Object.keys(process).sort().join())",
		"Module":      "import fs from 'fs'; export const x = 1; console.log(import.meta.url, typeof require, await Promise.resolve(fs.existsSync('/mnt/data')))",
		"Require":     "const fs = require('fs'); fs.writeFileSync('m.js', 'module.exports = 5'); console.log(require('./m'), require.resolve('fs')); fs.writeFileSync('n.mjs', 'export default 6'); import('./n.mjs').then((m) => console.log(m.default), (e) => console.log(e.code))",
		"Missing":     "require('not-there')",
		"Input":       "process.stdin.on('data', (d) => console.log('data', d)); process.stdin.on('end', () => console.log('end', process.stdin.isTTY))",
		"Descriptors": "console.log(require('fs').readdirSync('/proc/self/fd').filter((f) => f < 4))",
		"Nonblocking": "for (const f of [0, 1, 2]) console.log(require('fs').readFileSync('/proc/self/fdinfo/' + f, 'utf8').split('\\n')[1])",
		"Inherit":     "require('child_process').spawnSync('/bin/sh', ['-c', 'head -c 2000000 /dev/zero | tr \"\\\\0\" y'], {stdio: 'inherit'})",
		"Fork":        "if (process.argv[2]) { process.send({execArgv: process.execArgv, up: process.argv.length}); } else { const c = require('child_process').fork(__filename, ['child']); c.on('message', (m) => console.log(m)); c.on('exit', (x) => console.log('gone', x)) }",
		"Worker":      "const {Worker, isMainThread, parentPort} = require('worker_threads'); if (isMainThread) { const w = new Worker(__filename); w.on('message', (m) => console.log(m)); w.on('exit', (c) => console.log('exit', c)) } else parentPort.postMessage([process.execArgv, Object.keys(process.env).length])",
		"Hooks":       "const seen = []; const h = require('async_hooks').createHook({init(id, type) { seen.push(type) }, before() { seen.push('before') }, after() { seen.push('after') }}).enable(); setImmediate(() => { h.disable(); console.log(seen.join()) })",
		"Limits":      "console.log(require('fs').readFileSync('/proc/self/limits', 'utf8'))",
		"Timers":      "setTimeout(() => console.log('late'), 500); setImmediate(() => console.log('soon')); process.nextTick(() => console.log('tick')); console.log('now')",
		"Signal":      "process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 5000)",
		"Handled":     "process.on('SIGTERM', () => { console.log('term'); process.exit(2) }); process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 5000)",
		"Listeners":   "console.log(process.eventNames(), process.listenerCount('exit'), process.listenerCount('uncaughtExceptionMonitor'))",
		"Abort":       "process.abort()",
		"Files":       "require('fs').writeFileSync('out.txt', 'kept'); console.log(require('fs').readdirSync('/run/program'))",
		"BigOutput":   "console.log('x'.repeat(3000000))",
		"Memory":      "console.log(process.memoryUsage().heapUsed < 2e7, require('v8').getHeapStatistics().number_of_native_contexts)",
		"Random":      "console.log(Math.random() !== Math.random(), require('crypto').randomBytes(4).length)",
		"Wasm":        "console.log(new WebAssembly.Module(new Uint8Array([0,97,115,109,1,0,0,0])) instanceof WebAssembly.Module)",
		"Value":       "const x = 41\nx + 1",
		"Awaited":     "const f = async () => ({a: 1})\nf()",
		"Closed":      "const fs = require('fs'); fs.closeSync(1); fs.closeSync(3); throw new Error('x')",
	},
}

func TestAheadIsWhatACallerSees(t *testing.T) {
	var pooling backend.Backend
	e := openReal(t, func(c *engine.Config) { pooling = c.Backends[0] })
	plain := openReal(t, func(c *engine.Config) {
		_ = c.Backends[0].Close(t.Context())
		c.Backends = []backend.Backend{process.New(process.Config{NoPool: true})}
	})
	// waits runs programs until a process waits in every ready sandbox, and reports whether
	// that came about.
	waits := func(l sandboxmcp.Language) bool {
		return testkit.Within(t, time.Minute, func() bool {
			for range 2 { // the second request has the engine make some ready
				execute(t, e, sandboxmcp.Request{Code: "1", Language: l})
			}
			if testkit.Within(t, 200*time.Millisecond, func() bool {
				n := pooling.(backend.Pooler).Pool()
				return n["slots_ready"] > 1 && n["processes_ahead"] == n["slots_ready"]
			}) {
				return true
			}
			_ = pooling.(backend.Pooler).Trim(t.Context())
			return false
		})
	}
	for l, programs := range aheadPrograms {
		needs(t, e, l)
		ahead := map[sandboxmcp.Language]string{sandboxmcp.Shell: "grep -c BASH_ENV /proc/$$/environ", sandboxmcp.Node: "console.log(+(process.uptime() > .3))"}
		// A busy machine may make the one that is used anew.
		if !testkit.Within(t, 2*time.Minute, func() bool {
			if !waits(l) {
				return false
			}
			time.Sleep(300 * time.Millisecond) // Node that was started ahead is known by its age
			return execute(t, e, sandboxmcp.Request{Code: ahead[l], Language: l}).Stdout == "1\n"
		}) {
			t.Fatalf("%s: got no program that was started ahead, want one to compare with", l)
		}
		for name, code := range programs {
			for _, r := range []sandboxmcp.Request{{}, {Env: map[string]string{"MINE": "a b\n'\"ü", "EMPTY": ""}}, {Display: sandboxmcp.DisplayStdout}} {
				t.Run(string(l)+"/"+name, func(t *testing.T) {
					if l == sandboxmcp.Shell && r.Env != nil {
						t.Skip("a shell with variables is not started ahead")
					}
					if !waits(l) {
						t.Fatal("got no process that waits, want one to compare with")
					}
					r.Code, r.Language = code, l
					want, got := seen(execute(t, plain, r)), seen(execute(t, e, r))
					if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
						t.Errorf("results differ (-started for the program +started ahead):\n%s", diff)
					}
				})
			}
		}
	}
}
