package engine_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

const (
	secret = "Kit-0123456789ab"
	mask   = "***REDACTED***"
)

func addSecret(t *testing.T, e *engine.Engine, key, value string) {
	t.Helper()
	if err := e.VaultAdd(t.Context(), "", key, sandboxmcp.NewSecret(value), 0); err != nil {
		t.Fatal(err)
	}
}

// variable is what a started program has in its environment.
func variable(env []string, name string) string {
	value := "(none)"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// says is a program that puts out its argument's variable and more.
func says(stdout, stderr string) func(r *fakeRun) backend.Exit {
	return func(r *fakeRun) backend.Exit {
		_, _ = r.Stdout.Write([]byte(strings.ReplaceAll(stdout, "@", variable(r.Env, "TOKEN"))))
		_, _ = r.Stderr.Write([]byte(strings.ReplaceAll(stderr, "@", variable(r.Env, "TOKEN"))))
		return backend.Exit{}
	}
}

func TestSecretsReachProgramsAndNothingElse(t *testing.T) {
	f := &fake{program: says("[@]", "@ and "+base64.StdEncoding.EncodeToString([]byte(secret))+"\n")}
	e := open(t, f)
	if res := execute(t, e, shell("x")); res.Stdout != "[(none)]" || res.Metadata["secrets_available"] != nil {
		t.Errorf("without a secret: got %q, %v; want none exposed", res.Stdout, res.Metadata)
	}
	addSecret(t, e, "TOKEN", secret)
	var streamed bytes.Buffer
	req := shell("x")
	req.Stdout = &streamed
	res := execute(t, e, req)
	if variable(f.started[1].Env, "TOKEN") != secret {
		t.Errorf("environment: got %q, want the secret as TOKEN", f.started[1].Env)
	}
	if want := "[" + mask + "]"; res.Stdout != want || streamed.String() != want {
		t.Errorf("stdout %q, streamed %q, want %q", res.Stdout, streamed.String(), want)
	}
	if !strings.HasPrefix(res.Stderr, mask+" and "+mask) || strings.Contains(res.Stderr, base64.StdEncoding.EncodeToString([]byte(secret))[:12]) {
		t.Errorf("stderr: got %q, want the secret masked in every form", res.Stderr)
	}
	if got := fmt.Sprint(res.Metadata["secrets_available"]); got != "[TOKEN]" {
		t.Errorf("secrets_available: %s", got)
	}
	payload, err := base64.StdEncoding.DecodeString(res.Receipt.Payload)
	if err != nil || !strings.Contains(string(payload), `"secrets":["TOKEN"]`) {
		t.Errorf("receipt: got %s, %v; want the secret's name", payload, err)
	}
	// Nothing that is made ahead of a request, or seen by others, holds one.
	for _, p := range f.started {
		ahead, _ := json.Marshal([]any{p.Argv, p.Program})
		if pre := p.Prestart; pre != nil {
			more, err := json.Marshal([]any{pre.Argv, pre.Env, pre.Program})
			if pre.Fork != nil {
				more = append(more, pre.Fork.Load...)
			}
			if err != nil {
				t.Fatal(err)
			}
			ahead = append(ahead, more...)
		}
		if strings.Contains(string(ahead), secret) {
			t.Errorf("prepared ahead: got the secret in %s, want it injected later", ahead)
		}
	}
	if err := e.DeleteSecret(t.Context(), sandboxmcp.Caller{}, "TOKEN"); err != nil {
		t.Fatal(err)
	}
	if res = execute(t, e, shell("x")); res.Stdout != "[(none)]" {
		t.Errorf("after it was deleted: got %q, want none", res.Stdout)
	}
}

func TestWhichSecrets(t *testing.T) {
	for _, tt := range []struct {
		inject string
		env    map[string]string
		five   bool
		want   string // variables TOKEN and NAME
		code   sandboxmcp.Code
	}{
		{"all", nil, false, secret + " (none)", ""},
		{"all", nil, true, "(none) (none)", ""},
		{"all", map[string]string{"TOKEN": "the caller's own"}, false, "the caller's own (none)", ""},
		{"all", map[string]string{"NAME": "secret://TOKEN"}, false, secret + " " + secret, ""},
		{"all", map[string]string{"TOKEN": "secret://OTHER"}, false, secret + "-other (none)", ""},
		{"all", map[string]string{"NAME": "secret://NONE"}, false, "", sandboxmcp.CodeInvalidArgument},
		{"all", map[string]string{"NAME": "secret://TOKEN"}, true, "", sandboxmcp.CodeAccessDenied},
		{"named", nil, false, "(none) (none)", ""},
		{"named", map[string]string{"NAME": "secret://TOKEN"}, false, "(none) " + secret, ""},
		{"none", nil, false, "(none) (none)", ""},
		{"none", map[string]string{"NAME": "secret://TOKEN"}, false, "", sandboxmcp.CodeAccessDenied},
	} {
		f := &fake{program: func(r *fakeRun) backend.Exit {
			_, _ = r.Stdout.Write([]byte(secret)) // of its own knowledge
			return backend.Exit{}
		}}
		e := open(t, f, func(c *engine.Config) { c.VaultInject = tt.inject })
		addSecret(t, e, "TOKEN", secret)
		addSecret(t, e, "OTHER", secret+"-other")
		req := shell("x")
		req.Env, req.NoSecrets = tt.env, tt.five
		res, err := e.Execute(t.Context(), sandboxmcp.Caller{}, req)
		if sandboxmcp.CodeOf(err) != tt.code {
			t.Errorf("%s %v: got %v, want %q", tt.inject, tt.env, err, tt.code)
		}
		if tt.code != "" {
			if started, _ := f.starts(); started != 0 {
				t.Errorf("%s %v: got a program started, want a refusal", tt.inject, tt.env)
			}
			continue
		}
		if got := variable(f.started[0].Env, "TOKEN") + " " + variable(f.started[0].Env, "NAME"); got != tt.want {
			t.Errorf("%s %v: got %q, want %q", tt.inject, tt.env, got, tt.want)
		}
		if res.Stdout != mask {
			t.Errorf("%s %v: got stdout %q, want the mask", tt.inject, tt.env, res.Stdout)
		}
		if shadowed := fmt.Sprint(res.Metadata["secrets_shadowed"]); (shadowed == "[TOKEN]") != (tt.env["TOKEN"] == "the caller's own") {
			t.Errorf("%v: got secrets_shadowed %s, want TOKEN only if the caller's value hides it", tt.env, shadowed)
		}
		if tt.env != nil && strings.Contains(fmt.Sprint(tt.env), "Kit-") {
			t.Errorf("the caller's map: got %v, want it unchanged", tt.env)
		}
	}
}

// The use of a secret is on record, by its key, before the program starts.
func TestSecretsOnRecord(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	list := func() string {
		var all []string
		for _, a := range rows(t, dir, "default") {
			all = append(all, a.Action+" "+a.Phase+" "+a.Detail)
		}
		return strings.Join(all, "; ")
	}
	var atStart string
	f := &fake{program: func(*fakeRun) backend.Exit {
		atStart = list()
		return backend.Exit{}
	}}
	e := open(t, f, at(dir))
	addSecret(t, e, "TOKEN", secret)
	execute(t, e, shell("x"))
	if want := "vault_access outcome add TOKEN; execute intent shell: 1 bytes; vault_access intent use TOKEN"; atStart != want {
		t.Errorf("when the program started the record had %q, want %q", atStart, want)
	}
	if strings.Contains(list(), "Kit-") {
		t.Error("the record: got the value, want names alone")
	}
}

// All that is published or kept of a run is masked.
func TestMaskedEverywhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	picture := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n.." + secret + ".."))
	f := &fake{
		files: map[string]string{"of " + secret + ".txt": "fine", secret + ".b.txt": "fine too", "holds.txt": "x" + secret, "hex.txt": fmt.Sprintf("%x", secret)},
		program: func(r *fakeRun) backend.Exit {
			r.Frame(map[string]any{"type": "start"})
			r.Frame(map[string]any{"type": "display", "data": map[string]any{
				"text/plain": "v=" + secret, "text/html": "<b>" + secret + "</b>", "application/json": map[string]any{"k" + secret: []any{secret, 1}}, "image/png": picture, "is_main_result": true,
			}})
			r.Frame(map[string]any{"type": "display", "data": map[string]any{"image/png": picture}})
			r.Frame(map[string]any{"type": "error", "name": "E" + secret, "value": "about " + secret, "traceback": []string{"line 1", "  " + secret[:8], "at " + secret}})
			return backend.Exit{Code: 1}
		},
	}
	e := open(t, f, at(dir))
	addSecret(t, e, "TOKEN", secret)
	var shown results
	res := execute(t, e, sandboxmcp.Request{Code: "x", Display: sandboxmcp.DisplayResults, Shown: &shown})
	text, err := json.Marshal([]any{res, shown.list})
	if err != nil {
		t.Fatal(err)
	}
	for _, leak := range []string{secret, picture, fmt.Sprintf("%x", secret)} {
		if strings.Contains(string(text), leak) {
			t.Errorf("got %.20s in the result %s, want it masked", leak, text)
		}
	}
	if len(res.Results) != 2 || len(shown.list) != 2 || res.Results[0]["text/html"] != "<b>"+mask+"</b>" || res.Results[0]["image/png"] != nil || res.Results[1]["text/plain"] != mask {
		t.Errorf("got results %v, shown %v; want both masked, and no image that holds the secret", res.Results, shown.list)
	}
	if res.Error == nil || res.Error.Value != "about "+mask || len(res.Error.Traceback) != 3 {
		t.Errorf("error: got %+v, want it masked", res.Error)
	}
	var names []string
	for _, a := range res.Artifacts {
		names = append(names, a.Name)
		got, err := e.ArtifactContent(t.Context(), sandboxmcp.Caller{}, res.RequestID, a.Name)
		if err != nil || !strings.HasPrefix(string(got.ContentB64), "fine") || a.Path != "/mnt/data/"+a.Name {
			t.Errorf("%s: %+v, %v", a.Name, got, err)
		}
	}
	if want := []string{mask + ".b.txt", "of " + mask + ".txt"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
	if got := fmt.Sprint(res.Metadata["skipped"]); !strings.Contains(got, "holds.txt it holds the secret TOKEN") || !strings.Contains(got, "hex.txt") {
		t.Errorf("skipped %s", got)
	}
	again, err := e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: res.RequestID, Content: true})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ = json.Marshal(again); strings.Contains(string(text), secret) {
		t.Errorf("what was kept: got the secret in %s, want it masked", text)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		for _, form := range []string{secret, fmt.Sprintf("%x", secret), base64.StdEncoding.EncodeToString([]byte(secret))[:20]} {
			if bytes.Contains(data, []byte(form)) {
				t.Errorf("%s: got %.10s in it, want it nowhere on disk", p, form)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestHalvesOfSecretsAreReported: what a program shows, its error, its files and their names
// are searched for halves like its streams. Tables cut long values, for example.
func TestHalvesOfSecretsAreReported(t *testing.T) {
	half := secret[:len(secret)*3/4]
	frame := func(v map[string]any) func(*fakeRun) backend.Exit {
		return func(r *fakeRun) backend.Exit { r.Frame(v); return backend.Exit{} }
	}
	for name, f := range map[string]*fake{
		"value": {program: frame(map[string]any{"type": "display", "data": map[string]any{"text/plain": "| " + half + "…"}})},
		"JSON":  {program: frame(map[string]any{"type": "display", "data": map[string]any{"application/json": []string{half}}})},
		"error": {program: frame(map[string]any{"type": "error", "name": "E", "value": half, "traceback": []string{}})},
		"file":  {files: map[string]string{"f.txt": "| " + half + "…"}},
		"name":  {files: map[string]string{half: "fine"}},
		"none":  {files: map[string]string{"f.txt": secret[:6]}},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, f)
			addSecret(t, e, "TOKEN", secret)
			res := execute(t, e, sandboxmcp.Request{Code: "x", Display: sandboxmcp.DisplayResults})
			want := "[TOKEN]"
			if name == "none" {
				want = "<nil>"
			}
			if got := fmt.Sprint(res.Metadata["secrets_partial"]); got != want {
				t.Errorf("got %s as secrets_partial of %+v, want %s", got, res, want)
			}
		})
	}
}

// results collects what is shown.
type results struct{ list []sandboxmcp.RichResult }

func (r *results) WriteResult(v sandboxmcp.RichResult) { r.list = append(r.list, v) }

func TestSecretArtifactsAllowed(t *testing.T) {
	f := &fake{files: map[string]string{"holds.txt": "x" + secret, "fine.txt": "x"}}
	e := open(t, f, func(c *engine.Config) { c.AllowSecretArtifacts = true })
	addSecret(t, e, "TOKEN", secret)
	res := execute(t, e, shell("x"))
	if len(res.Artifacts) != 2 || string(res.Artifacts[1].ContentB64) != "x"+secret || fmt.Sprint(res.Metadata["secret_artifacts"]) != "[holds.txt]" {
		t.Errorf("got %+v, %v", res.Artifacts, res.Metadata)
	}
}

// Output is masked before it is cut. The bound for floods counts what the program wrote.
func TestMaskedBeforeTheCut(t *testing.T) {
	for _, tt := range []struct {
		limit     int64
		out, want string
		cut       bool
		status    sandboxmcp.Status
	}{
		{20, strings.Repeat("x", 10) + secret + "tail", strings.Repeat("x", 10) + mask[:10], true, sandboxmcp.StatusCompleted},
		{14, secret, mask, false, sandboxmcp.StatusCompleted},
		{13, secret, mask[:13], true, sandboxmcp.StatusCompleted},
		{100, strings.Repeat(secret+" ", 90), "", true, sandboxmcp.StatusCompleted},
		{10, strings.Repeat(secret, 11), mask[:10], true, sandboxmcp.StatusOutputLimit}, // 176 bytes, of which 14 are left
		{100, "xy" + secret[:12], "xy" + secret[:12], false, sandboxmcp.StatusCompleted},
	} {
		e := open(t, &fake{program: says(tt.out, "")})
		addSecret(t, e, "KEY", secret)
		req := shell("x")
		req.Limits.MaxOutputBytes = tt.limit
		res := execute(t, e, req)
		if tt.want == "" {
			tt.want = strings.Repeat(mask+" ", 7)[:100]
		}
		if res.Stdout != tt.want || res.StdoutTruncated != tt.cut || res.Status != tt.status {
			t.Errorf("%d bytes of %.30q: got %q %v %s, want %q %v %s", tt.limit, tt.out, res.Stdout, res.StdoutTruncated, res.Status, tt.want, tt.cut, tt.status)
		}
		if half := fmt.Sprint(res.Metadata["secrets_partial"]) == "[KEY]"; half != strings.HasPrefix(tt.out, "xy") {
			t.Errorf("%.30q: got metadata %v, want KEY as partial only where half of it was printed", tt.out, res.Metadata)
		}
	}
}

func TestInspectVault(t *testing.T) {
	e := open(t, &fake{})
	addSecret(t, e, "TOKEN", secret)
	if err := e.VaultAdd(t.Context(), "team", "OTHER", sandboxmcp.NewSecret(secret), time.Hour); err != nil {
		t.Fatal(err)
	}
	st, err := e.Inspect(t.Context(), sandboxmcp.Caller{}, "")
	if err != nil || fmt.Sprint(st.VaultKeys, st.Env["TOKEN"]) != "[TOKEN]"+mask || st.Env["OTHER"] != nil {
		t.Errorf("got %+v, %v", st, err)
	}
	list, err := e.Secrets(t.Context(), sandboxmcp.Caller{Namespace: "team"})
	if err != nil || len(list.Secrets) != 1 || list.Secrets[0].Key != "OTHER" || list.Secrets[0].ExpiresAt == nil {
		t.Errorf("got %+v, %v", list, err)
	}
	for _, bad := range [][2]string{{"NODE_PATH", secret}, {"ENV", secret}, {"KEY", "REDACTED"}, {"KEY", "***REDACTED***"}} {
		wantCode(t, e.VaultAdd(t.Context(), "", bad[0], sandboxmcp.NewSecret(bad[1]), 0), sandboxmcp.CodeInvalidArgument)
	}
	wantCode(t, e.VaultAdd(t.Context(), "a b", "KEY", sandboxmcp.NewSecret(secret), 0), sandboxmcp.CodeInvalidArgument)
}

// A run whose secrets cannot be read is refused, and the record says so.
func TestVaultGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	first := open(t, &fake{}, at(dir))
	addSecret(t, first, "TOKEN", secret)
	if err := os.Remove(filepath.Join(dir, "vault.key")); err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	e := open(t, f, at(dir))
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, shell("x"))
	wantCode(t, err, sandboxmcp.CodeVaultUnavailable)
	if started, _ := f.starts(); started != 0 {
		t.Errorf("programs started: got %d, want none", started)
	}
	eventually(t, "its sandbox is gone", func() bool { _, open := f.starts(); return open == 0 })
	all := rows(t, dir, "default")
	if last := all[len(all)-1]; last.Action != "execute" || last.Phase != sandboxmcp.PhaseOutcome || !strings.Contains(last.Detail, "vault_unavailable") {
		t.Errorf("the last entry: got %+v, want the outcome with vault_unavailable", last)
	}
}

func TestPII(t *testing.T) {
	program := func(r *fakeRun) backend.Exit {
		_, _ = r.Stdout.Write([]byte("write to kit@example.com"))
		return backend.Exit{}
	}
	if res := execute(t, open(t, &fake{program: program}), shell("x")); res.Stdout != "write to kit@example.com" {
		t.Errorf("got %q", res.Stdout)
	}
	e := open(t, &fake{program: program}, func(c *engine.Config) { c.RedactPII = true })
	if res := execute(t, e, shell("x")); res.Stdout != "write to [EMAIL]" {
		t.Errorf("got %q", res.Stdout)
	}
}
