package config_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// TestEverySettingOfARunIsEffective: a setting that a run may depend on changes what Effective
// returns. Only the settings of doors, answers and the log do not, and each is named here.
func TestEverySettingOfARunIsEffective(t *testing.T) {
	aside := []string{
		"run_server", "api_host", "api_port", "artifact_server", "sandbox_http_host", "sandbox_http_port",
		"mcp_answers", "mcp_tools", "mcp_read_only", "mcp_output_chars",
		"cors_origins", "public_url", "oauth_issuer", "oauth_audience", "oauth_keys_url", "oauth_scope", "api_rate",
		"sandbox_log_level", "sandbox_log_file", "sandbox_log_format",
	}
	samples := []string{
		"true", "false", "1", "2", "0.5", "5000", "L1", "docker", "memory", "full", "off", "keyring", "named", "deny", "rw", "json", "DEBUG", "approved",
		"https://a.example", "postgres://a.example/b", "s3://a/b", "127.0.0.1:5", "a.example=127.0.0.1:5", "a.example", "/a", "1900000000-1900065535", "7m", "pod",
	}
	base := map[string]string{"test": "true"}
	was := load(t, config.Sources{Flags: base})
	before := was.Effective(nil)
	for _, v := range was.Values() {
		if v.Key == "test" || v.Key == "hardened" { // the latter has one legal value
			continue
		}
		var after []byte
		for _, s := range samples {
			flags := maps.Clone(base)
			flags[v.Key] = s
			c, err := config.Load(config.Sources{Env: []string{home}, Flags: flags})
			if err == nil && len(c.Changed(was, true))+len(c.Changed(was, false)) == 1 {
				after = c.Effective(nil)
				break
			}
		}
		if after == nil {
			t.Errorf("%s: got no sample that is another legal value, want one", v.Key)
			continue
		}
		if got, want := !bytes.Equal(before, after), !slices.Contains(aside, v.Key); got != want {
			t.Errorf("%s: got effective %v, want %v", v.Key, got, want)
		}
	}
}

// TestEffectiveEnvironment: variables that a run may depend on count, in any order; those of
// terminals and settings do not, because settings count by their values.
func TestEffectiveEnvironment(t *testing.T) {
	base := []string{home, "PATH=/bin"}
	effective := func(more ...string) string {
		env := slices.Concat(base, more)
		c, err := config.Load(config.Sources{Env: env})
		if err != nil {
			t.Fatal(err)
		}
		return string(c.Effective(env))
	}
	for _, c := range []struct {
		name string
		more []string
		want bool // another text than without
	}{
		{"a terminal", []string{"TERM=xterm", "SHLVL=3", "PWD=/x", "_=/bin/x", "VTE_VERSION=1"}, false},
		{"a setting with its default", []string{"SANDBOXMCP_MAX_RAM_MB=512", "sandbox_memory_limit=512m"}, false},
		{"a setting", []string{"SANDBOXMCP_MAX_RAM_MB=511"}, true},
		{"a secret", []string{"SANDBOXMCP_SECRET_DEFAULT_TOKEN=x"}, true},
		{"a version manager", []string{"PYENV_VERSION=3.12"}, true},
		{"certificates", []string{"SSL_CERT_FILE=/a"}, true},
		{"an unknown variable", []string{"WHATEVER=1"}, true},
	} {
		if got := effective(c.more...) != effective(); got != c.want {
			t.Errorf("%s: got another text %v, want %v", c.name, got, c.want)
		}
	}
	if effective("A=1", "B=2") != effective("B=2", "A=1") {
		t.Error("the order of two variables: got another text, want the same")
	}
	if effective("A=1", "A=2") == effective("A=2", "A=1") {
		t.Error("the order of a variable that occurs twice: got the same text, want another")
	}
	if effective("A=1", "B=2") == effective("A=1\nB=2") {
		t.Error("a line feed in a value: got the text of two variables, want another")
	}
}
