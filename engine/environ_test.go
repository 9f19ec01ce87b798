package engine_test

import (
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// environs are programs that print every environment that they can get at: their
// own, as it is and as the kernel shows it, that of a child and those of all others.
var environs = map[sandboxmcp.Language]string{
	sandboxmcp.Python: `
import os, subprocess
print(sorted(os.environb.items()))
for p in sorted(p for p in os.listdir('/proc') if p.isdigit()) + ['self']:
    try:
        with open('/proc/%s/environ' % p, 'rb') as f: print(p, f.read())
    except OSError as e: print(p, e.strerror)
print(subprocess.run(['env'], capture_output=True).stdout)
print('looked')
`,
	sandboxmcp.Node: `
const fs = require('fs')
console.log(process.env)
for (const p of fs.readdirSync('/proc').filter((p) => /^\d+$/.test(p)).concat('self')) {
  try { console.log(p, fs.readFileSync('/proc/' + p + '/environ', 'latin1')) } catch (e) { console.log(p, e.code) }
}
console.log(require('child_process').execFileSync('env').toString())
console.log('looked')
`,
	sandboxmcp.Shell: `
declare -p; env
for p in $$ self [0-9]*; do echo $p; tr '\0' '\n' < /proc/$p/environ; done 2>/dev/null
cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'
echo looked
`,
}

// TestNothingOfTheServersEnvironment: no program sees the server's environment, however it was
// started, and no variable in it changes an interpreter. It is the operator's and may hold
// keys.
func TestNothingOfTheServersEnvironment(t *testing.T) {
	const mark = "this-is-the-operators"
	for name, value := range map[string]string{
		"OPENAI_API_KEY": mark, "LD_LIBRARY_PATH": "/" + mark, "PYTHONPATH": "/tmp/" + mark, "PYTHONSTARTUP": "/tmp/" + mark, "PYTHONHOME": "/" + mark,
		"PYTHONHASHSEED": "7", "PYTHONWARNINGS": "error", "PYTHONINSPECT": "1", "PYTHONUSERBASE": "/" + mark, "NODE_OPTIONS": "--require=/" + mark, "NODE_PATH": "/" + mark,
		"BASH_ENV": "/" + mark, "ENV": "/" + mark, "BASH_FUNC_echo%%": "() { printf " + mark + "; }", "SHELLOPTS": "errexit", "PS4": mark, "CDPATH": "/" + mark,
		"LC_ALL": mark, "TZ": mark, "HTTPS_PROXY": "http://" + mark, "SSL_CERT_FILE": "/" + mark, "MALLOC_PERTURB_": "7",
	} {
		t.Setenv(name, value)
	}
	for l, code := range environs {
		t.Run(string(l), func(t *testing.T) {
			var b backend.Backend
			e := openReal(t, func(c *engine.Config) { b = c.Backends[0] })
			needs(t, e, l)
			look := func(how string, r sandboxmcp.Request) {
				t.Helper()
				res := execute(t, e, r)
				if !res.Success || !strings.HasSuffix(res.Stdout, "looked\n") {
					t.Errorf("%s: got %s %q %.500q, want every environment looked at", how, res.Status, res.Stdout, res.Stderr)
				}
				if all := res.Stdout + res.Stderr; strings.Contains(all, mark) {
					t.Errorf("%s: got the server's environment: %s, want none of it", how, all)
				}
				for _, name := range []string{"HASHSEED", "PYTHONWARNINGS", "INSPECT", "NODE_OPTIONS", "MALLOC_PERTURB_", "API_KEY"} {
					if strings.Contains(res.Stdout, name) {
						t.Errorf("%s: got %s, want it hidden", how, name)
					}
				}
			}
			r := sandboxmcp.Request{Language: l, Code: code}
			look("executed", r)
			if !warm(t, e, b, l) {
				t.Fatal("got nothing ready within 20 s, want an interpreter to look at")
			}
			look("ready", r)
			r.SessionID = create(t, e, sandboxmcp.SessionSpec{Language: l})
			look("session", r)
			fresh := r
			fresh.SessionID = create(t, e, sandboxmcp.SessionSpec{Language: l, Fresh: true})
			look("session of single runs", fresh)
			look("session of single runs, again", fresh)
		})
	}
}

// TestTenantsOfOneZygoteShareNoMemory: what one fork was told is in no page of the next. The
// search is first tried on the fork that was told, where it has to succeed.
func TestTenantsOfOneZygoteShareNoMemory(t *testing.T) {
	var b backend.Backend
	e := openReal(t, func(c *engine.Config) { b = c.Backends[0] })
	needs(t, e, sandboxmcp.Python)
	if !warm(t, e, b, sandboxmcp.Python) {
		t.Fatal("got no zygote within 20 s, want one")
	}
	tell := sandboxmcp.Request{
		Language: sandboxmcp.Python, Env: map[string]string{"TOLD": "told-of-another-request"},
		Code: "import os\nkept = [os.environ['TOLD'] * 3 for _ in range(50000)]\nprint(os.getpid(), len(kept))",
	}
	searching := testkit.Hostile(t, "searches-memory.py")
	own := tell
	own.Code += "\n" + searching
	if res := execute(t, e, own); strings.Contains(res.Stdout, "\n0 ") || !strings.Contains(res.Stdout, "['TOLD']") {
		t.Fatalf("the program that was told it: found %q %q, want its own text", res.Stdout, res.Stderr)
	}
	for range 4 {
		if res := execute(t, e, tell); res.Stdout != "3 50000\n" {
			t.Fatalf("a fork that is told a text: got %q %q, want 3 50000", res.Stdout, res.Stderr)
		}
		res := execute(t, e, sandboxmcp.Request{Language: sandboxmcp.Python, Code: searching})
		if res.Stdout != "0 [] '' []\n" {
			t.Errorf("the next fork: found %s %s, want nothing", res.Stdout, res.Stderr)
		}
		testkit.Until(t, "a zygote to fork the next program from", func() bool { return b.(backend.Pooler).Pool()["zygotes"] > 0 })
	}
}
