package engine

import (
	"reflect"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// TestNoRunReadsASettingOfTheFront: the settings that do not count when the command line looks for
// a server that is alike change nothing of an engine or its backends.
func TestNoRunReadsASettingOfTheFront(t *testing.T) {
	samples := map[string]string{
		"run_server": "off", "api_host": "127.0.0.2", "api_port": "1", "artifact_server": "false", "sandbox_http_host": "127.0.0.2", "sandbox_http_port": "1",
		"mcp_answers": "full", "mcp_tools": "web", "mcp_read_only": "true", "mcp_output_chars": "5000",
		"cors_origins": "https://a.example", "public_url": "https://a.example", "oauth_issuer": "https://a.example", "oauth_audience": "a", "oauth_keys_url": "https://a.example", "oauth_scope": "a", "api_rate": "1",
		"sandbox_log_level": "DEBUG", "sandbox_log_file": "/a", "sandbox_log_format": "json",
	}
	env := []string{"HOME=/home/u", "PATH=/bin"}
	built := func(flags map[string]string) []any {
		t.Helper()
		c, err := config.Load(config.Sources{Env: env, Flags: flags})
		if err != nil {
			t.Fatal(err)
		}
		host, e := processConfig(c, nil, env), Options{Env: env}.configured(c)
		e.Strangers = false // with an issuer, places are kept for others: a run waits longer and is the same
		return []any{e, host, dockerConfig(c, host, env)}
	}
	plain := built(nil)
	seen := 0
	for _, r := range config.Rows() {
		if !r.Front {
			continue
		}
		seen++
		value, ok := samples[r.Key]
		if !ok {
			t.Errorf("%s: got no other value, want one", r.Key)
			continue
		}
		if got := built(map[string]string{r.Key: value}); !reflect.DeepEqual(got, plain) {
			t.Errorf("%s: got another engine or backend, want the same", r.Key)
		}
	}
	if seen != len(samples) {
		t.Errorf("got %d settings of the front, want %d", seen, len(samples))
	}
	if got := built(map[string]string{"max_ram_mb": "7"}); reflect.DeepEqual(got, plain) {
		t.Error("max_ram_mb: got the same engine, want another")
	}
}
