package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// TestReload: lists and limits of the file are in force at once, other settings are held, and a
// file with a fault changes nothing.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "settings.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("enable_network: true\nallowed_domains: [a.example]\nmax_ram_mb: 100\nenable_host_access: true\nhost_allowed_commands: [ls]\nhost_blocked_commands: []\npackages_deny: [six]\n")
	env := []string{"HOME=" + dir, "SANDBOXMCP_STATE_DIR=" + filepath.Join(dir, "state"), "SANDBOXMCP_TIMEOUT=7", "PATH=" + os.Getenv("PATH")}
	e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Env: env, File: file}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	me := sandboxmcp.Caller{}
	type state struct {
		Domains, Allowed, Blocked []string
		RAM                       int
		Timeout                   float64
		Ceiling                   int // max_ram_mb of a request for too much
	}
	look := func() state {
		t.Helper()
		l, err := e.SetLimits(t.Context(), me, sandboxmcp.LimitsChange{})
		if err != nil {
			t.Fatal(err)
		}
		top, err := e.SetLimits(t.Context(), sandboxmcp.Caller{Namespace: "default"}, sandboxmcp.LimitsChange{Limits: sandboxmcp.Limits{MaxRAMMB: 8192}})
		if err == nil {
			_, err = e.SetLimits(t.Context(), me, sandboxmcp.LimitsChange{Reset: true})
		}
		if err != nil {
			t.Fatal(err)
		}
		h, err := e.HostAccess(t.Context(), me)
		if err != nil {
			t.Fatal(err)
		}
		g, err := e.Egress(t.Context(), me)
		if err != nil {
			t.Fatal(err)
		}
		return state{Domains: g.Operator, Allowed: h.Allowed, Blocked: h.Blocked, RAM: l.Current.MaxRAMMB, Timeout: l.Current.TimeoutSeconds, Ceiling: top.Current.MaxRAMMB}
	}
	first := state{Domains: []string{"a.example"}, Allowed: []string{"ls"}, Blocked: []string{}, RAM: 100, Timeout: 7, Ceiling: 8192}
	if d := cmp.Diff(first, look()); d != "" {
		t.Fatalf("at first (-want +got):\n%s", d)
	}
	if got, err := e.Reload(); err != nil || len(got.Changed)+len(got.Held) != 0 {
		t.Errorf("an unchanged file: got %+v, %v, want nothing", got, err)
	}

	for _, bad := range []string{"max_ram_mb: much\n", "host_allowed_commands: ['ls |']\nallowed_domains: [z.example]\nenable_host_access: true\n", "max_ram_mb: 200\nceiling_ram_mb: 100\n"} {
		write(bad)
		if got, err := e.Reload(); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%q: got %+v, %v, want invalid_argument", bad, got, err)
		}
	}
	if d := cmp.Diff(first, look()); d != "" {
		t.Errorf("after faults (-want +got):\n%s", d)
	}

	write("enable_network: true\nallowed_domains: [b.example, '*.c.example']\nmax_ram_mb: 60\nceiling_ram_mb: 70\ntimeout_seconds: 30\nenable_host_access: true\nhost_allowed_commands: []\nhost_blocked_commands: [ls]\nnamespace: other\n")
	got, err := e.Reload()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got.Changed)
	want := engine.Reloaded{Changed: []string{"allowed_domains", "ceiling_ram_mb", "host_allowed_commands", "host_blocked_commands", "max_ram_mb", "packages_deny"}, Held: []string{"namespace"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("reload (-want +got):\n%s", d)
	}
	if d := cmp.Diff(state{Domains: []string{"b.example", "*.c.example"}, Allowed: []string{}, Blocked: []string{"ls"}, RAM: 60, Timeout: 7, Ceiling: 70}, look()); d != "" {
		t.Errorf("after reload (-want +got):\n%s", d)
	}
	if _, err := e.ExecHost(t.Context(), me, sandboxmcp.HostCommand{Command: "ls"}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeHostAccessBlocked {
		t.Errorf("a command that is blocked now: got %v, want host_access_blocked", err)
	}
	if again, err := e.Reload(); err != nil || len(again.Changed) != 0 || !slices.Equal(again.Held, want.Held) {
		t.Errorf("again: got %+v, %v, want the held one alone", again, err)
	}
}

// TestReloadOfPackages: a package that the file denies is refused from the reload on.
func TestReloadOfPackages(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "settings.yaml")
	if err := os.WriteFile(file, []byte("packages_allow: [six]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "PIP_INDEX_URL=http://127.0.0.1:1/simple", "PIP_CONFIG_FILE=/dev/null"}
	e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Env: env, File: file}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	install := func() sandboxmcp.Code {
		_, err := e.Install(t.Context(), sandboxmcp.Caller{}, sandboxmcp.InstallAsk{Language: sandboxmcp.Python, Packages: []string{"six"}})
		return sandboxmcp.CodeOf(err)
	}
	if got := install(); got == sandboxmcp.CodePackageRejected || got == "" {
		t.Errorf("an allowed package: got %q, want a failure of the index", got)
	}
	if err = os.WriteFile(file, []byte("packages_allow: [six]\npackages_deny: [six]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = e.Reload(); err != nil {
		t.Fatal(err)
	}
	if got := install(); got != sandboxmcp.CodePackageRejected {
		t.Errorf("a denied package: got %q, want package_rejected", got)
	}
}

// TestReloadWithoutSettings: an engine that was made from values of a program has no file.
func TestReloadWithoutSettings(t *testing.T) {
	e, err := engine.New(t.Context(), engine.Config{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err = e.Reload(); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("got %v, want invalid_argument", err)
	}
}

// reloadCase is what one setting changes.
type reloadCase struct {
	before, after string // the file
	look          func(e *engine.Engine) string
	want          [2]string // what look sees before and after
}

func codeText(err error) string { return string(sandboxmcp.CodeOf(err)) }

// TestEveryReloadedSettingIsInForce: each setting of the engine that can be reloaded is in force
// after a reload, and the record says so.
func TestEveryReloadedSettingIsInForce(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<p>hello</p>")) }))
	defer site.Close()
	dir, me := t.TempDir(), sandboxmcp.Caller{}
	shown := filepath.Join(dir, "shown")
	if err := errors.Join(os.Mkdir(shown, 0o755), os.WriteFile(filepath.Join(shown, "a.txt"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	limit := func(pick func(sandboxmcp.Limits) any) func(e *engine.Engine) string {
		return func(e *engine.Engine) string {
			l, err := e.SetLimits(t.Context(), me, sandboxmcp.LimitsChange{})
			return fmt.Sprint(pick(l.Current), codeText(err))
		}
	}
	ceiling := func(asked sandboxmcp.Limits) func(e *engine.Engine) string {
		return func(e *engine.Engine) string {
			_, err := e.SetLimits(t.Context(), me, sandboxmcp.LimitsChange{Limits: asked, Strict: true})
			if err == nil {
				_, err = e.SetLimits(t.Context(), me, sandboxmcp.LimitsChange{Reset: true})
			}
			return codeText(err)
		}
	}
	install := func(e *engine.Engine) string {
		_, err := e.Install(t.Context(), me, sandboxmcp.InstallAsk{Language: sandboxmcp.Python, Packages: []string{"six"}})
		return codeText(err)
	}
	ask := func(e *engine.Engine) string {
		a, err := e.RequestEgress(t.Context(), me, sandboxmcp.EgressAsk{Domain: "ask.example"})
		return string(a.Status) + codeText(err)
	}
	open := func(e *engine.Engine) string {
		l, err := e.Egress(t.Context(), me)
		return strings.Join(l.Operator, ",") + codeText(err)
	}
	check := func(e *engine.Engine) string {
		v, err := e.Validate(t.Context(), me, sandboxmcp.CodeCheck{Code: "import os\nos.system('ls')\n", Language: sandboxmcp.Python})
		return string(v.Verdict) + " " + strconv.Itoa(len(v.Issues)) + codeText(err)
	}
	host := func(e *engine.Engine) string {
		_, err := e.ExecHost(t.Context(), me, sandboxmcp.HostCommand{Command: "true"})
		return codeText(err)
	}
	const on = "enable_host_access: true\n"
	allowSite := "web_allow_hosts: ['" + strings.TrimPrefix(site.URL, "http://") + "']"
	fetch := func(e *engine.Engine) string {
		p, err := e.FetchPage(t.Context(), me, sandboxmcp.PageAsk{URL: site.URL})
		return strings.TrimSpace(p.Content) + codeText(err)
	}
	cases := map[string]reloadCase{
		"max_ram_mb":              {"", "max_ram_mb: 300", limit(func(l sandboxmcp.Limits) any { return l.MaxRAMMB }), [2]string{"512", "300"}},
		"max_cpu_cores":           {"", "max_cpu_cores: 0.5", limit(func(l sandboxmcp.Limits) any { return l.MaxCPUCores }), [2]string{"1", "0.5"}},
		"timeout_seconds":         {"", "timeout_seconds: 5", limit(func(l sandboxmcp.Limits) any { return l.TimeoutSeconds }), [2]string{"60", "5"}},
		"max_processes":           {"", "max_processes: 5", limit(func(l sandboxmcp.Limits) any { return l.MaxProcesses }), [2]string{"10", "5"}},
		"max_output_bytes":        {"", "max_output_bytes: 5", limit(func(l sandboxmcp.Limits) any { return l.MaxOutputBytes }), [2]string{"1000000", "5"}},
		"ceiling_ram_mb":          {"", "ceiling_ram_mb: 600", ceiling(sandboxmcp.Limits{MaxRAMMB: 700}), [2]string{"", "limit_exceeds_cap"}},
		"ceiling_cpu_cores":       {"", "ceiling_cpu_cores: 0.5", ceiling(sandboxmcp.Limits{MaxCPUCores: 0.9}), [2]string{"", "limit_exceeds_cap"}},
		"ceiling_timeout_seconds": {"", "ceiling_timeout_seconds: 70", ceiling(sandboxmcp.Limits{TimeoutSeconds: 80}), [2]string{"", "limit_exceeds_cap"}},
		"ceiling_processes":       {"", "ceiling_processes: 20", ceiling(sandboxmcp.Limits{MaxProcesses: 30}), [2]string{"", "limit_exceeds_cap"}},
		"ceiling_output_bytes":    {"", "ceiling_output_bytes: 2000000", ceiling(sandboxmcp.Limits{MaxOutputBytes: 3000000}), [2]string{"", "limit_exceeds_cap"}},
		"max_code_bytes": {"", "max_code_bytes: 3", func(e *engine.Engine) string {
			_, err := e.Execute(t.Context(), me, sandboxmcp.Request{Code: "print(1)", Backend: "docker"})
			return codeText(err)
		}, [2]string{"docker_unavailable", "code_too_large"}},
		"max_concurrent_jobs": {"", "max_concurrent_jobs: 9", func(e *engine.Engine) string {
			s, err := e.Stats(t.Context())
			return strconv.Itoa(s.Queue.MaxConcurrent) + codeText(err)
		}, [2]string{"4", "9"}},
		"enable_network":        {"allowed_domains: [a.example]", "allowed_domains: [a.example]\nenable_network: true", open, [2]string{"", "a.example"}},
		"allowed_domains":       {"enable_network: true", "enable_network: true\nallowed_domains: [a.example]", open, [2]string{"", "a.example"}},
		"egress_approvals":      {"", "egress_approvals: false", ask, [2]string{"pending", "denied"}},
		"web_allow_hosts":       {"", allowSite, fetch, [2]string{"blocked_address", "hello"}},
		"enable_web_access":     {allowSite, allowSite + "\nenable_web_access: false", fetch, [2]string{"hello", "network_disabled"}},
		"host_allowed_commands": {on + "host_allowed_commands: []", on + "host_allowed_commands: ['true']", host, [2]string{"host_access_denied", ""}},
		"host_blocked_commands": {on + "host_allowed_commands: ['true']", on + "host_allowed_commands: ['true']\nhost_blocked_commands: ['true']", host, [2]string{"", "host_access_blocked"}},
		"host_roots": {on, on + "host_roots: [" + shown + "]", func(e *engine.Engine) string {
			c, err := e.ReadHostFile(t.Context(), me, sandboxmcp.HostRead{Path: filepath.Join(shown, "a.txt")})
			return c.Content + codeText(err)
		}, [2]string{"host_path_denied", "x"}},
		"packages":            {"packages: deny", "packages: allow", install, [2]string{"package_rejected", "install_failed"}},
		"packages_allow":      {"", "packages_allow: [other]", install, [2]string{"install_failed", "package_rejected"}},
		"packages_deny":       {"", "packages_deny: [six]", install, [2]string{"install_failed", "package_rejected"}},
		"reject_dangerous":    {"", "reject_dangerous: true", check, [2]string{"pass 1", "reject 1"}},
		"validation_disabled": {"", "validation_disabled: [os.system]", check, [2]string{"pass 1", "pass 0"}},
	}
	// These are seen by programs, sessions or clients: see the tests of the rooms that hold them.
	elsewhere := []string{
		"max_queued", "work_quota_mb", "artifact_keep_hours", "artifact_keep_mb", "audit_keep_days", "egress_private_hosts", "egress_hold_seconds", "packages_min_age_days",
		"sandbox_memory_limit", "sandbox_cpu_limit", "sandbox_exec_timeout_s", "sandbox_session_ttl_m", "sandbox_max_sessions",
		"sandbox_max_upload_bytes", "sandbox_max_artifact_read_bytes", "sandbox_max_output_bytes", "sandbox_max_code_bytes", "sandbox_network",
		"mcp_output_chars", "api_keys", "cors_origins", "api_rate",
	}
	for _, r := range config.Rows() {
		if _, ok := cases[r.Key]; r.Live && !ok && !slices.Contains(elsewhere, r.Key) {
			t.Errorf("%s can be reloaded, and no test sees it in force", r.Key)
		}
	}
	for key, c := range cases {
		t.Run(key, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "settings.yaml")
			env := []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "PIP_INDEX_URL=http://127.0.0.1:1/simple", "PIP_CONFIG_FILE=/dev/null"}
			if err := os.WriteFile(file, []byte(c.before), 0o600); err != nil {
				t.Fatal(err)
			}
			e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Env: env, File: file}, Env: env})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if got := c.look(e); got != c.want[0] {
				t.Errorf("before: got %q, want %q", got, c.want[0])
			}
			if err = os.WriteFile(file, []byte(c.after), 0o600); err != nil {
				t.Fatal(err)
			}
			done, err := e.Reload()
			if err != nil || !slices.Equal(done.Changed, []string{key}) || len(done.Held) > 0 {
				t.Errorf("got %+v, %v, want %s alone", done, err, key)
			}
			if got := c.look(e); got != c.want[1] {
				t.Errorf("after: got %q, want %q", got, c.want[1])
			}
			got, err := e.Audit(t.Context(), me, sandboxmcp.AuditQuery{Action: "settings_reloaded", Limit: 5})
			if err != nil || len(got.Entries) != 1 || got.Entries[0].Actor != "operator" || got.Entries[0].Detail != "changed: "+key {
				t.Errorf("got the record %+v, %v, want the change of %s by the operator", got.Entries, err, key)
			}
		})
	}
}

// TestReloadsAreOnRecordWithoutSecrets: the record has the values before and after, and no key.
func TestReloadsAreOnRecordWithoutSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("api_keys: [first-secret-key=one]\nmax_ram_mb: 100\n")
	env := []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}
	e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Env: env, File: file}, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	write("api_keys: ['second-secret-key=*']\nmax_ram_mb: 200\nnamespace: other\nsearxng_url: http://user:third-secret@a.example\n")
	if _, err = e.Reload(); err != nil {
		t.Fatal(err)
	}
	write("api_keys: ['fourth secret key']\n")
	if _, err = e.Reload(); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("got %v, want invalid_argument", err)
	}
	got, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{Action: "settings_reloaded", Limit: 5})
	if err != nil || len(got.Entries) != 2 {
		t.Fatalf("got %+v, %v, want two entries", got, err)
	}
	text, err := json.Marshal(got.Entries)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"refused: invalid_argument", "changed: max_ram_mb, api_keys; after a new start: namespace, searxng_url", `"max_ram_mb":{"current":200,"previous":100}`, `***REDACTED***=*`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	if strings.Contains(string(text), "secret") {
		t.Errorf("got %s, want no secret", text)
	}
}

// TestReloadShowsNoKeys: a file of the settings that programs can read gets no keys into force later either.
func TestReloadShowsNoKeys(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "settings.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("max_queued: 7\n")
	values := map[string]any{"workspace_path": dir}
	e, err := engine.Open(t.Context(), engine.Options{Settings: engine.Settings{Values: values, File: file, Env: []string{"SANDBOXMCP_STATE_DIR=" + t.TempDir() + "/state"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, line := range []string{"api_keys: [a-key-of-a-caller=team-a]\n", "database_url: postgres://u:p@127.0.0.1:1/d?sslmode=disable\n"} {
		write(line)
		if _, err := e.Reload(); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument || !strings.Contains(err.Error(), "is in it") {
			t.Errorf("%s: got %v, want it refused as at the start", line, err)
		}
	}
	write("max_queued: 8\n")
	if done, err := e.Reload(); err != nil || !slices.Equal(done.Changed, []string{"max_queued"}) {
		t.Errorf("without keys: got %+v and %v, want max_queued changed", done, err)
	}
}
