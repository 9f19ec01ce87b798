package engine_test

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// sessionSays is how each language puts out a variable, or nothing, and keeps it.
var sessionSays = map[sandboxmcp.Language]struct{ show, keep, kept string }{
	sandboxmcp.Python: {"import os; print('[' + os.environ.get('TOKEN', '') + ']')", "import os; v = os.environ['TOKEN']", "print('[' + v + ']', len(v))"},
	sandboxmcp.Node:   {"console.log('[' + (process.env.TOKEN ?? '') + ']')", "var v = process.env.TOKEN", "console.log('[' + v + ']', v.length)"},
	sandboxmcp.Shell:  {`echo "[$TOKEN]"`, `v=$TOKEN`, `echo "[$v] ${#v}"`},
}

// A live session sees a new secret with its next run, and a deleted one no longer. Values that
// its variables may still hold stay masked, also one that was replaced.
func TestSecretsInSessions(t *testing.T) {
	e := openReal(t)
	for lang, say := range sessionSays {
		t.Run(string(lang), func(t *testing.T) {
			needs(t, e, lang)
			id := create(t, e, sandboxmcp.SessionSpec{Language: lang})
			wants := func(code, want string) {
				t.Helper()
				if res := execute(t, e, in(id, code)); res.Stdout != want {
					t.Errorf("%s: got %q %q, want %q", code, res.Stdout, res.Stderr, want)
				}
			}
			wants(say.show, "[]\n")
			addSecret(t, e, "TOKEN", secret)
			wants(say.show, "["+mask+"]\n")
			wants(say.keep, "")
			addSecret(t, e, "TOKEN", secret+"-new")
			wants(say.kept, fmt.Sprintf("[%s] %d\n", mask, len(secret)))
			wants(say.keep, "")
			if err := e.DeleteSecret(t.Context(), sandboxmcp.Caller{}, "TOKEN"); err != nil {
				t.Fatal(err)
			}
			wants(say.show, "[]\n")
			wants(say.kept, fmt.Sprintf("[%s] %d\n", mask, len(secret)+4))
			wants(say.kept+"\n"+strings.ReplaceAll(say.show, "TOKEN", "TOKEN2"), fmt.Sprintf("[%s] %d\n[]\n", mask, len(secret)+4))
		})
	}
}

// Files and bridged values of a session are masked as the files of a run are.
func TestSecretsInFilesOfSessions(t *testing.T) {
	for _, allow := range []bool{false, true} {
		e := openReal(t, func(c *engine.Config) { c.AllowSecretArtifacts = allow })
		needs(t, e, sandboxmcp.Python)
		addSecret(t, e, "TOKEN", secret)
		id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Python})
		res := execute(t, e, in(id, `import os, json
t = os.environ['TOKEN']
open('/mnt/data/holds.txt', 'w').write(t)
open('/mnt/data/of ' + t, 'w').write('fine')
os.makedirs('/mnt/data/.bridge', exist_ok=True); json.dump({'a': [t, 1]}, open('/mnt/data/.bridge/k.json', 'w'))
open('/mnt/data/.bridge/' + t + '.json', 'w').write('1'); open('/mnt/data/.bridge/' + t.encode().hex() + '.json', 'w').write('1')`))
		named := ""
		for _, a := range res.Artifacts {
			if strings.Contains(a.Name, "of ") {
				named = a.Path
			}
		}
		if named != "/mnt/data/of "+mask {
			t.Errorf("artifacts: got %+v, want a masked name", res.Artifacts)
		}
		if f, data, err := e.ReadFile(t.Context(), sandboxmcp.Caller{}, id, named, 100); err != nil || string(data) != "fine" || f.Filename != path.Base(named) {
			t.Errorf("ReadFile by the masked name: got %+v, %q, %v; want fine", f, data, err)
		}
		_, data, err := e.ReadFile(t.Context(), sandboxmcp.Caller{}, id, "/mnt/data/holds.txt", 100)
		if allow && string(data) != secret || !allow && (sandboxmcp.CodeOf(err) != sandboxmcp.CodeAccessDenied || data != nil) {
			t.Errorf("allowed %v: got %q, %v", allow, data, err)
		}
		files, err := e.SessionFiles(t.Context(), sandboxmcp.Caller{}, id)
		if text, _ := json.Marshal(files); err != nil || strings.Contains(string(text), secret) || len(files) != 2 {
			t.Errorf("files: got %s, %v; want 2 without the secret", text, err)
		}
		b, err := e.Bridge(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Bridge{From: id})
		if err != nil || len(b.Keys) != 1 || string(b.Data["k"]) != `{"a":["`+mask+`",1]}` {
			t.Errorf("bridged: got %s, %v; want the secret masked", b.Data, err)
		}
	}
}

// The cause of a failure goes to the log. It names files as they are, and programs choose the
// names.
func TestSecretsAreNotInCauses(t *testing.T) {
	e := openReal(t)
	needs(t, e, sandboxmcp.Python)
	addSecret(t, e, "TOKEN", secret)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Python})
	execute(t, e, in(id, `import os
os.symlink('/etc/passwd', '/mnt/data/link ' + os.environ['TOKEN'])
os.mkfifo('/mnt/data/pipe ' + os.environ['TOKEN'])`))
	_, _, linked := e.ReadFile(t.Context(), sandboxmcp.Caller{}, id, "/mnt/data/link "+mask, 100)
	_, _, piped := e.ReadFile(t.Context(), sandboxmcp.Caller{}, id, "/mnt/data/pipe "+mask, 100)
	removed := e.RemoveFile(t.Context(), sandboxmcp.Caller{}, id, "/mnt/data/link "+mask+"/x")
	for what, err := range map[string]error{"a link": linked, "a FIFO": piped, "what is not there": removed} {
		cause := sandboxmcp.AsError(err).Err
		if cause == nil || strings.Contains(cause.Error(), secret) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v because of %v, want a cause without the secret", what, err, cause)
		}
	}
}

// An interpreter that waits for a request holds no secret: a program without secrets finds
// none beside programs that have some.
func TestSecretsAreNotInWhatWaits(t *testing.T) {
	e := openReal(t)
	addSecret(t, e, "TOKEN", secret)
	for lang, say := range sessionSays {
		needs(t, e, lang)
		for n := range 6 {
			req := sandboxmcp.Request{Code: say.show, Language: lang, NoSecrets: n%2 == 1}
			want := "[" + mask + "]\n"
			if req.NoSecrets {
				want = "[]\n"
			}
			if res := execute(t, e, req); res.Stdout != want {
				t.Errorf("%s: got %q %q, want %q", lang, res.Stdout, res.Stderr, want)
			}
		}
		look := sandboxmcp.Request{Language: sandboxmcp.Shell, NoSecrets: true, Code: "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^TOKEN='"}
		if res := execute(t, e, look); strings.TrimSpace(res.Stdout) != "0" {
			t.Errorf("after %s: found %q, want 0", lang, res.Stdout)
		}
	}
}

// The largest number of secrets, of the largest size, reaches a program together with all
// variables that a caller may set.
func TestAsManySecretsAsThereMayBe(t *testing.T) {
	e := openRealOn(t, process.Config{NoPool: true})
	needs(t, e, sandboxmcp.Python)
	addSecret(t, e, "LARGE", strings.Repeat("0123456789abcdef", 4<<10))
	for n := range 99 {
		addSecret(t, e, fmt.Sprintf("TOKEN_%d", n), fmt.Sprintf("%s-%d", secret, n))
	}
	env := map[string]string{}
	for n := range 128 {
		env[fmt.Sprintf("OWN_%d", n)] = strings.Repeat("x", 1000)
	}
	req := sandboxmcp.Request{Code: "import os; print(sum(n.startswith(('TOKEN_', 'LARGE', 'OWN_')) for n in os.environ), os.environ['LARGE'], os.environ['TOKEN_98'])", Env: env}
	for _, id := range []sandboxmcp.SessionID{"", create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Python})} {
		req.SessionID = id
		if res := execute(t, e, req); res.Stdout != "228 "+mask+" "+mask+"\n" {
			t.Errorf("got %.200q %.500q", res.Stdout, res.Stderr)
		}
	}
}
