package config_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

const home = "HOME=/home/u"

func load(t *testing.T, src config.Sources) *config.Config {
	t.Helper()
	src.Env = append([]string{home}, src.Env...)
	c, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func value(t *testing.T, c *config.Config, key string) config.Value {
	t.Helper()
	for _, v := range c.Values() {
		if v.Key == key {
			return v
		}
	}
	t.Fatalf("got no setting %s, want one", key)
	return config.Value{}
}

func file(t *testing.T, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDefaults(t *testing.T) {
	c := load(t, config.Sources{})
	want := map[string]any{
		"default_backend": "process", "max_concurrent_jobs": 4, "enable_network": false, "allowed_domains": []string{}, "egress_approvals": true,
		"enable_web_access": true, "enable_host_access": false, "host_auto_approve": false, "host_roots": []string{}, "redact_pii": false, "max_ram_mb": 512,
		"max_cpu_cores": 1.0, "timeout_seconds": 60.0, "max_processes": 10, "namespace": sandboxmcp.DefaultNamespace, "memory_limit": "256m",
		"cpu_period": 100000, "cpu_quota": 50000, "network_mode": "none", "hardened": true, "isolation_min": sandboxmcp.TierL2, "packages": "allow",
		"reject_dangerous": false, "work_quota_mb": 512, "vault": "sealed", "audit": "sqlite", "synchronous": "normal",
		"uid_range": "1900000000-1933554431", "state_dir": "/home/u/.local/state/sandboxmcp", "api_keys": []string{},
		"sandbox_memory_limit": "512m", "sandbox_log_format": "console", "sandbox_max_output_bytes": int64(102400),
	}
	got := map[string]any{}
	for k := range want {
		v := value(t, c, k)
		got[k] = v.Value
		if v.Source != config.FromDefault {
			t.Errorf("source of %s: got %s, want default", k, v.Source)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(sandboxmcp.DefaultLimits(), c.Limits()); d != "" {
		t.Error("limits", d)
	}
}

func TestPrecedence(t *testing.T) {
	c := load(t, config.Sources{
		Env:   []string{"SANDBOXMCP_MAX_RAM_MB=400", "SANDBOXMCP_API_PORT=2"},
		File:  file(t, "timeout_seconds: 7\nmax_ram_mb: 300\napi_port: 1\nhost_roots: [/a, /b]\n"),
		Flags: map[string]string{"api_port": "3"},
	})
	type vs struct {
		Value  any
		Source config.Source
	}
	want := map[string]vs{
		"timeout_seconds": {7.0, config.FromYAML}, "max_ram_mb": {400, config.FromEnv}, "api_port": {3, config.FromFlag},
		"max_processes": {10, config.FromDefault}, "host_roots": {[]string{"/a", "/b"}, config.FromYAML},
	}
	got := map[string]vs{}
	for k := range want {
		v := value(t, c, k)
		got[k] = vs{v.Value, v.Source}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestBadVariables(t *testing.T) {
	for _, kv := range []string{
		"SANDBOXMCP_MAX_CONCURRENT=many", "SANDBOXMCP_NETWORK=maybe", "SANDBOXMCP_TIMEOUT=-1", "SANDBOXMCP_MAX_CPU_CORES=nan", "SANDBOXMCP_VAULT=drawer",
		"SANDBOXMCP_AUDIT=paper", "SANDBOXMCP_BACKEND=cloud", "SANDBOXMCP_NAMESPACE=a b", "SANDBOXMCP_ISOLATION_MIN=L9", "SANDBOXMCP_PACKAGES=some",
		"SANDBOX_MEMORY_LIMIT=12q", "SANDBOX_MAX_SESSIONS=ten", "SANDBOX_LOG_FORMAT=xml", "SANDBOXMCP_API_PORT=99999", "SANDBOXMCP_TIMEOUT=inf",
		"SANDBOXMCP_MAX_RAM_MB=0", "SANDBOXMCP_MAX_RAM_MB=9000", "SANDBOXMCP_UID_RANGE=0-65535", "SANDBOXMCP_UID_RANGE=100000-100001",
		"SANDBOXMCP_HOST_ROOTS=relative", "SANDBOXMCP_ALLOWED_DOMAINS=http://x/", "SANDBOXMCP_EGRESS_TEST_DNS=nowhere", "SEARXNG_URL=file:///x",
		"SANDBOX_MEMORY_LIMIT=0", "SANDBOX_MEMORY_LIMIT=k", "SANDBOXMCP_CEILING_CPU_CORES=-0.5",
	} {
		name, bad, _ := strings.Cut(kv, "=")
		_, err := config.Load(config.Sources{Env: []string{home, "SANDBOXMCP_TEST=1", kv}})
		if got := sandboxmcp.CodeOf(err); got != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%s: got code %q, want invalid_argument", kv, got)
			continue
		}
		if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), "it has to be") {
			t.Errorf("%s: got %v, want the variable, the value and the legal form named", kv, err)
		}
	}
}

func TestTestVariables(t *testing.T) {
	for _, kv := range []string{"SANDBOXMCP_EGRESS_TEST_DNS=127.0.0.1:53", "SANDBOXMCP_EGRESS_TEST_RESOLVE=a.example:443=127.0.0.1:1"} {
		name, _, _ := strings.Cut(kv, "=")
		if _, err := config.Load(config.Sources{Env: []string{home, kv}}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s without SANDBOXMCP_TEST: got %v, want a refusal by name", kv, err)
		}
		load(t, config.Sources{Env: []string{kv, "SANDBOXMCP_TEST=1"}})
	}
	c := load(t, config.Sources{Env: []string{
		"SANDBOXMCP_TEST=1", "SANDBOXMCP_EGRESS_TEST_DNS=127.0.0.1:53", "SANDBOXMCP_EGRESS_TEST_RESOLVE=A.Example:443=127.0.0.1:1, b.example=[::1]:2",
	}})
	if got, want := fmt.Sprint(c.EgressTestResolve, c.EgressTestDNS), "[a.example:443=127.0.0.1:1 b.example=[::1]:2] 127.0.0.1:53"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if c := load(t, config.Sources{}); c.EgressTestDNS.IsValid() || len(c.EgressTestResolve) != 0 || value(t, c, "egress_test_dns").Value != "" {
		t.Errorf("without variables: got %v %v", c.EgressTestResolve, c.EgressTestDNS)
	}
	for _, bad := range []string{"a.example", "a.example=127.0.0.1", "*.a.example=127.0.0.1:1", "127.0.0.1=127.0.0.1:1", "a.example=b.example:1", "localhost=127.0.0.1:1", "a.example=127.0.0.1:0", "=127.0.0.1:1"} {
		_, err := config.Load(config.Sources{Env: []string{home, "SANDBOXMCP_TEST=1", "SANDBOXMCP_EGRESS_TEST_RESOLVE=" + bad}})
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument || !strings.Contains(fmt.Sprint(err), "EGRESS_TEST_RESOLVE") {
			t.Errorf("%s: got %v, want invalid_argument that names the variable", bad, err)
		}
	}
	if _, err := config.Load(config.Sources{Env: []string{home}, File: file(t, "test: true\n")}); err == nil {
		t.Error("test in a file: got no error")
	}
}

func TestDomains(t *testing.T) {
	c := load(t, config.Sources{
		Env:  []string{"SANDBOXMCP_ALLOWED_DOMAINS=Api.Example., *.b.example:8443"},
		File: file(t, "egress_private_hosts: [db.corp.example:5432]\n"),
	})
	if d := cmp.Diff([]sandboxmcp.Domain{{Host: "api.example"}, {Host: "b.example", Wild: true, Port: 8443}}, c.AllowedDomains); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]sandboxmcp.Domain{{Host: "db.corp.example", Port: 5432}}, c.EgressPrivateHosts); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"api.example", "*.b.example:8443"}, value(t, c, "allowed_domains").Value); d != "" {
		t.Error("shown", d)
	}
	for _, kv := range []string{
		"SANDBOXMCP_ALLOWED_DOMAINS=*", "SANDBOXMCP_ALLOWED_DOMAINS=*.com", "SANDBOXMCP_ALLOWED_DOMAINS=a.example,10.0.0.1", "SANDBOXMCP_ALLOWED_DOMAINS=printer",
		"SANDBOXMCP_EGRESS_PRIVATE_HOSTS=*.corp.example", "SANDBOXMCP_EGRESS_PRIVATE_HOSTS=10.0.0.1",
	} {
		name, _, _ := strings.Cut(kv, "=")
		if _, err := config.Load(config.Sources{Env: []string{home, kv}}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v, want invalid_argument that names it", kv, err)
		}
	}
}

func TestFiles(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"timeout_seconds: 5\n\ntimeout_secs: 6\n", []string{"c.yaml:3", `"timeout_secs"`, "did you mean timeout_seconds?"}},
		{"zzzzzzzz: 1\n", []string{"c.yaml:1", "zzzzzzzz"}},
		{"timeout_seconds: [1\n", []string{"c.yaml"}},
		{"timeout_seconds: soon\n", []string{"c.yaml:1", "timeout_seconds", `"soon"`}},
		{"max_ram_mb: 1\nenable_network: maybe\n", []string{"c.yaml:2", "enable_network", `"maybe"`}},
		{"allowed_domains: 5\n", []string{"allowed_domains", "a list of"}},
		{"max_ram_mb: [5]\n", []string{"max_ram_mb", "a list"}},
		{"max_ram_mb: {a: 5}\n", []string{"max_ram_mb", "nested"}},
		{"max_ram_mb: 5.5\n", []string{"max_ram_mb", "whole number"}},
		{"max_ram_mb: 5\nmax_ram_mb: 6\n", []string{"c.yaml:2", "max_ram_mb"}},
		{"- a\n", []string{"c.yaml:1", "mapping"}},
		{"max_ram_mb: 5\n---\nmax_ram_mb: 6\n", []string{"more than one"}},
		{"namespace: \"\"\n", []string{"namespace"}},
		{"max_ram_mb: 500\nceiling_ram_mb: 400\n", []string{"max_ram_mb", "ceiling"}},
	} {
		_, err := config.Load(config.Sources{Env: []string{home}, File: file(t, c.text)})
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%q: got %v, want invalid_argument", c.text, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: got %v, want an error with %q", c.text, err, w)
			}
		}
	}
	if _, err := config.Load(config.Sources{Env: []string{home}, File: "/none.yaml"}); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("missing file: got %v", err)
	}
	for _, text := range []string{"", "# nothing\n", "---\n", "image: null\n", "image: \"\"\n"} {
		load(t, config.Sources{File: file(t, text)})
	}
}

// TestEveryKey writes each documented default into a file and reads it back.
func TestEveryKey(t *testing.T) {
	var b strings.Builder
	n := 0
	for _, r := range config.Rows() {
		if r.Key == "" {
			continue
		}
		n++
		if strings.HasPrefix(r.Legal, "a list") {
			fmt.Fprintf(&b, "%s: [%s]\n", r.Key, r.Default)
		} else {
			fmt.Fprintf(&b, "%s: %s\n", r.Key, r.Default)
		}
	}
	if n < 60 {
		t.Fatalf("got %d keys, want all", n)
	}
	c := load(t, config.Sources{File: file(t, b.String())})
	plain := load(t, config.Sources{})
	for i, v := range plain.Values() {
		got := c.Values()[i]
		got.Source = v.Source
		if d := cmp.Diff(v, got); d != "" {
			t.Error(d)
		}
	}
}

func TestBooleans(t *testing.T) {
	for text, want := range map[string]bool{"true": true, "FALSE": false, "1": true, "0": false, "Yes": true, "no": false, "on": true, "off": false} {
		if got := load(t, config.Sources{Env: []string{"SANDBOXMCP_NETWORK=" + text}}).EnableNetwork; got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
		if got := load(t, config.Sources{File: file(t, "enable_network: "+text+"\n")}).EnableNetwork; got != want {
			t.Errorf("%s in a file: got %v, want %v", text, got, want)
		}
	}
}

// TestKeysOfOperators: * in place of namespaces makes the key of an operator, and is no namespace
// beside others.
func TestKeysOfOperators(t *testing.T) {
	c := load(t, config.Sources{Env: []string{"SANDBOXMCP_API_KEYS=one=*,two=a,three,four*"}})
	var got []bool
	for _, k := range c.APIKeys {
		got = append(got, k.Operator)
	}
	if d := cmp.Diff([]bool{true, false, false, false}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(c.APIKeys[0].Namespaces) != 0 {
		t.Errorf("got the namespaces %v, want none", c.APIKeys[0].Namespaces)
	}
	if d := cmp.Diff([]sandboxmcp.Namespace{"a", c.Namespace, c.Namespace}, c.KeyNamespaces()); d != "" {
		t.Errorf("namespaces of keys, with the server's own for those that name none (-want +got):\n%s", d)
	}
	c = load(t, config.Sources{Env: []string{home, "SANDBOXMCP_API_KEYS=one=a|b|" + string(c.Namespace) + ",two=b|c,three=d,four"}})
	if d := cmp.Diff(map[sandboxmcp.Namespace]string{"a": sandboxmcp.KeyActor(1), "c": sandboxmcp.KeyActor(2)}, c.KeyHolders()); d != "" {
		t.Errorf("keys with several namespaces that alone hold one (-want +got):\n%s", d)
	}
	if c.OAuthIssuer = "https://issuer.example"; len(c.KeyHolders()) > 0 {
		t.Errorf("with an issuer: got %v, want none", c.KeyHolders())
	}
	for _, bad := range []string{"one=*|a", "one=a|*", "one=**", "=team", "one,=team"} {
		if _, err := config.Load(config.Sources{Env: []string{home, "SANDBOXMCP_API_KEYS=" + bad}}); err == nil {
			t.Errorf("%s: got no error, want a refusal", bad)
		}
	}
}

func TestSecretsStayHidden(t *testing.T) {
	const secret = "very-secret-key"
	c := load(t, config.Sources{Env: []string{"SANDBOXMCP_API_KEYS=" + secret + "=a|b," + secret + "2==", "SEARXNG_URL=http://me:" + secret + "@search.example/"}})
	if got, want := c.APIKeys[0].Key.Reveal(), secret; got != want {
		t.Errorf("key: got %q, want %q", got, want)
	}
	if got, want := c.APIKeys[1].Key.Reveal(), secret+"2=="; got != want {
		t.Errorf("key with padding: got %q, want %q", got, want)
	}
	if d := cmp.Diff([]sandboxmcp.Namespace{"a", "b"}, c.APIKeys[0].Namespaces); d != "" {
		t.Error(d)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if s := fmt.Sprintf(verb, *c) + fmt.Sprintf(verb, c.APIKeys) + fmt.Sprintf(verb, c.Values()); strings.Contains(s, secret) || strings.Contains(s, fmt.Sprintf("%x", secret)) {
			t.Errorf("%s: got the secret, want it hidden", verb)
		}
	}
	for _, env := range []string{"SANDBOXMCP_API_KEYS=" + secret + "=a b", "SEARXNG_URL=ftp://me:" + secret + "@search.example/"} {
		_, err := config.Load(config.Sources{Env: []string{home, env}})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("illegal value: got %v, want a refusal without the secret", err)
		}
	}
	for _, text := range []string{
		"api_keys: [" + secret + ", a b]", "api_keys:\n  - a b\n  - " + secret, "api_keys:\n  - " + secret + "\n  - [", "{api_keys: [" + secret + "], x: }",
		"searxng_url: ftp://me:" + secret + "@search.example/", "searxng_url: http://me:" + secret + "@search.example/: x\n",
	} {
		_, err := config.Load(config.Sources{Env: []string{home}, File: file(t, text)})
		if err == nil || strings.Contains(fmt.Sprint(err, sandboxmcp.AsError(err).Body()), secret) {
			t.Errorf("%q: got %v, want a refusal without the secret", text, err)
		}
	}
}

func TestToolVariables(t *testing.T) {
	c := load(t, config.Sources{Env: []string{"SANDBOXMCP_TIMEOUT=9", "sandbox_memory_limit=96m", "Sandbox_Http_Port=8123"}})
	l := c.ToolLimits()
	want := sandboxmcp.Limits{MaxRAMMB: 96, MaxOutputBytes: 102400} // and of the engine's the 9 s
	if d := cmp.Diff(want, l); d != "" {
		t.Error(d)
	}
	if port, chosen := c.Port(); port != 8123 || !chosen {
		t.Errorf("port: got %d %v, want 8123 true", port, chosen)
	}
	c = load(t, config.Sources{Env: []string{"SANDBOXMCP_TIMEOUT=9", "SANDBOX_EXEC_TIMEOUT_S=1"}})
	if got := c.ToolLimits().TimeoutSeconds; got != 1 {
		t.Errorf("timeout: got %v, want 1", got)
	}
	if port, chosen := c.Port(); port != 8080 || chosen {
		t.Errorf("port: got %d %v, want 8080 false", port, chosen)
	}
}

// TestLeastLimits: a limit with which nothing can start, or that no kernel enforces, is refused with the least.
func TestLeastLimits(t *testing.T) {
	for text, least := range map[string]string{
		"memory_limit: 1b\n": "at least 1m", "memory_limit: 1023k\n": "at least 1m", "sandbox_memory_limit: 1\n": "at least 1m",
		"max_cpu_cores: 0.0001\n": "max_cpu_cores is \"0.0001\"; it has to be a number from 0.01 to", "ceiling_cpu_cores: 0.009\n": "at least 0.01",
		"sandbox_cpu_limit: 0.001\n": "from 0.01 to", "cpu_quota: 1000\ncpu_period: 1000000\n": "at least 0.01",
	} {
		_, err := config.Load(config.Sources{Env: []string{home}, File: file(t, text)})
		if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument || !strings.Contains(fmt.Sprint(err), least) {
			t.Errorf("%q: got %v, want invalid_argument with %q", text, err, least)
		}
	}
	c := load(t, config.Sources{File: file(t, "max_cpu_cores: 0.01\ncpu_quota: 1000\n")})
	if c.MaxCPUCores != 0.01 || c.ContainerLimits().MaxCPUCores != 0.01 {
		t.Errorf("the least: got %v and %v, want 0.01", c.MaxCPUCores, c.ContainerLimits().MaxCPUCores)
	}
}

// TestContainerSettings: the settings of Docker bound containers only if they are set.
func TestContainerSettings(t *testing.T) {
	for text, want := range map[string]struct {
		limits   sandboxmcp.Limits
		open     bool
		backends []string // to which domains are open; nil: to all
		image    string
	}{
		"timeout_seconds: 9\n":                            {},
		"memory_limit: 300m\n":                            {limits: sandboxmcp.Limits{MaxRAMMB: 300}},
		"memory_limit: 1024k\n":                           {limits: sandboxmcp.Limits{MaxRAMMB: 1}},
		"cpu_quota: 25000\n":                              {limits: sandboxmcp.Limits{MaxCPUCores: 0.25}},
		"cpu_period: 20000\ncpu_quota: 40000\n":           {limits: sandboxmcp.Limits{MaxCPUCores: 2}},
		"network_mode: bridge\n":                          {},
		"network_mode: bridge\ndefault_backend: docker\n": {open: true, backends: []string{"docker"}},
		"network_mode: bridge\ndefault_backend: docker\nenable_network: true\n": {open: true},
		"network_mode: NONE\ndefault_backend: docker\n":                         {},
		"enable_network: true\nnetwork_mode: none\n":                            {open: true},
		"sandbox_image: a:1\n":                                                  {image: "a:1"},
		"sandbox_image: a:1\nimage: b:2\nhardened: true\n":                      {image: "b:2"},
	} {
		c := load(t, config.Sources{File: file(t, text)})
		if d := cmp.Diff(want.limits, c.ContainerLimits()); d != "" || c.OpensNetwork() != want.open || want.open && !slices.Equal(c.NetworkBackends(), want.backends) || c.ContainerImage() != want.image {
			t.Errorf("%q: got open %t to %v, image %q, limits (-want +got):\n%s", text, c.OpensNetwork(), c.NetworkBackends(), c.ContainerImage(), d)
		}
	}
	for text, want := range map[string]string{
		"network_mode: host\n":              "it has to be none, or a network",
		"network_mode: HOST\n":              "it has to be none, or a network",
		"network_mode: container:other\n":   "it has to be none, or a network",
		"network_mode: ns:/proc/1/ns/net\n": "it has to be none, or a network",
		"hardened: false\n":                 "it has to be true",
		"hardened: off\n":                   "it has to be true",
	} {
		if _, err := config.Load(config.Sources{Env: []string{home}, File: file(t, text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func TestCeilings(t *testing.T) {
	c := load(t, config.Sources{Env: []string{"SANDBOXMCP_CEILING_RAM_MB=256", "SANDBOXMCP_MAX_CPU_CORES=1024"}})
	if got := c.Limits().MaxRAMMB; got != 256 {
		t.Errorf("default above the ceiling: got %d, want 256", got)
	}
	if got, want := c.Limits().MaxCPUCores, c.Ceilings().MaxCPUCores; got != want {
		t.Errorf("cores: got %v, want %v", got, want)
	}
}

func TestStateDir(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"SANDBOXMCP_STATE_DIR=/s", "HOME=/h"}, "/s"},
		{[]string{"XDG_STATE_HOME=/x", "HOME=/h"}, "/x/sandboxmcp"},
		{[]string{"XDG_STATE_HOME=relative", "HOME=/h"}, "/h/.local/state/sandboxmcp"},
	} {
		got, err := config.Load(config.Sources{Env: c.env})
		if err != nil {
			t.Fatal(err)
		}
		if got.StateDir != c.want {
			t.Errorf("%v: got %s, want %s", c.env, got.StateDir, c.want)
		}
	}
	_, err := config.Load(config.Sources{})
	var e *sandboxmcp.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "SANDBOXMCP_STATE_DIR") {
		t.Errorf("without HOME: got %v, want a hint at SANDBOXMCP_STATE_DIR", err)
	}
}

// TestFilesOfManyBracketsAreRefused: the parser recurses, and a stack that overflows ends the process.
func TestFilesOfManyBracketsAreRefused(t *testing.T) {
	for _, deep := range []string{strings.Repeat("[", 500_000), strings.Repeat("{a: ", 200_000), strings.Repeat("- ", 400_000), strings.Repeat("? ", 400_000), strings.Repeat("&a ", 300_000)} {
		_, err := config.Load(config.Sources{Env: []string{home}, File: file(t, "allowed_domains: "+deep+"\n")})
		if err == nil || sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("%.6q…: got %v, want %s", deep, err, sandboxmcp.CodeInvalidArgument)
		}
	}
}

func TestFaultsOfAFileAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&text, "no_such_setting_%d: 1\n", i)
	}
	_, err := config.Load(config.Sources{Env: []string{home}, File: file(t, text.String())})
	if n := strings.Count(fmt.Sprint(err), "unknown setting"); n == 0 || n > 50 {
		t.Errorf("got %d faults, want 1 to 50: %.200v", n, err)
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := config.Load(config.Sources{Env: []string{home}}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestMistypedVariablesAreFound(t *testing.T) {
	env := []string{
		"HOME=/h", "SANDBOXMCP_TIMOUT=5", "SANDBOXMCP_ALLOWED_DOMAIN=a", "SANDBOX_MAX_SESION=1", "SANDBOX_EXEC_TIMEOUT=1", "SANDBOX_TIMEOUT=1",
		"sandbox_max_sesions=1", "sandboxmcp_timeout=1", "SANDBOXMCP_QQQQQQQQQ=1", "SANDBOXMCP_MAX_RAM=1",
		"SANDBOXMCP_TIMEOUT=5", "sandbox_max_sessions=3", "SANDBOX_LOG_LEVEL=INFO", "SANDBOXMCP_SECRET_DEFAULT_KIT=x", "SANDBOX_OUTPUT_DIR=/mnt/data", "SANDBOXED=1", "PATH=/bin",
	}
	c, err := config.Load(config.Sources{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	want := []config.Mistyped{
		{Name: "SANDBOXMCP_ALLOWED_DOMAIN", Guess: "SANDBOXMCP_ALLOWED_DOMAINS"},
		{Name: "SANDBOXMCP_MAX_RAM", Guess: "SANDBOXMCP_MAX_RAM_MB"},
		{Name: "SANDBOXMCP_QQQQQQQQQ"},
		{Name: "SANDBOXMCP_TIMOUT", Guess: "SANDBOXMCP_TIMEOUT"},
		{Name: "SANDBOX_EXEC_TIMEOUT", Guess: "SANDBOX_EXEC_TIMEOUT_S"},
		{Name: "SANDBOX_MAX_SESION", Guess: "SANDBOX_MAX_SESSIONS"},
		{Name: "SANDBOX_TIMEOUT", Guess: "SANDBOXMCP_TIMEOUT"},
		{Name: "sandbox_max_sesions", Guess: "SANDBOX_MAX_SESSIONS"},
		{Name: "sandboxmcp_timeout", Guess: "SANDBOXMCP_TIMEOUT"},
	}
	if d := cmp.Diff(want, c.Mistyped()); d != "" {
		t.Errorf("got other variables (-want +got):\n%s", d)
	}
}
