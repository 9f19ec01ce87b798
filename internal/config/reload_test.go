package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// TestReloadedKeepsWhatNeedsANewStart: of the settings that are read again, only those that can be
// reloaded are taken.
func TestReloadedKeepsWhatNeedsANewStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.yaml")
	load := func(text string) *config.Config {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Sources{File: file, Env: []string{"HOME=/home/x", "SANDBOXMCP_TIMEOUT=7"}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := load("namespace: one\nmax_ram_mb: 100\napi_port: 1234\napi_keys: [a]\nsandbox_cpu_limit: 0.5\n")
	next := load("namespace: two\nmax_ram_mb: 200\napi_port: 4321\napi_keys: ['a=*']\n")
	c, err := first.Reloaded(next)
	if err != nil {
		t.Fatal(err)
	}
	if c.Namespace != "one" || c.APIPort != 1234 || c.MaxRAMMB != 200 || c.TimeoutSeconds != 7 || c.StateDir != first.StateDir || len(c.APIKeys) != 1 || !c.APIKeys[0].Operator {
		t.Errorf("got namespace %s, port %d, RAM %d, timeout %g, state %s, keys %+v, want one, 1234, 200, 7, %s and an operator's key", c.Namespace, c.APIPort, c.MaxRAMMB, c.TimeoutSeconds, c.StateDir, c.APIKeys, first.StateDir)
	}
	if port, chosen := c.Port(); port != 1234 || !chosen {
		t.Errorf("got port %d, chosen %t, want 1234, which the operator chose", port, chosen)
	}
	if c.Source("sandbox_cpu_limit") != config.FromDefault || c.ToolLimits().MaxCPUCores != 0 {
		t.Errorf("a limit that the file no longer has: got source %s, %g cores, want default, 0", c.Source("sandbox_cpu_limit"), c.ToolLimits().MaxCPUCores)
	}
	changed, held := c.Changed(first, true), next.Changed(c, false)
	slices.Sort(changed)
	if want := []string{"api_keys", "max_ram_mb", "sandbox_cpu_limit"}; !slices.Equal(changed, want) {
		t.Errorf("changed: got %v, want %v", changed, want)
	}
	if want := []string{"api_port", "namespace"}; len(held) != 2 || !slices.Contains(held, want[0]) || !slices.Contains(held, want[1]) {
		t.Errorf("held: got %v, want %v", held, want)
	}
	if got := c.Display("api_keys"); !slices.Equal(got.([]string), []string{"***REDACTED***=*"}) {
		t.Errorf("shown keys: got %v, want the key redacted", got)
	}
}

// TestTheFaultOfAListIsNamed: the message has the entry that is not legal, unless it is a secret.
func TestTheFaultOfAListIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"host_roots: [/good, rel]":  `host_roots is a list with "rel"; it has to be a list of absolute directories`,
		"api_keys: ['good', 'a b']": "api_keys is a list with ***REDACTED***;",
		"api_keys: [twice, twice]":  "api_keys is a list; it has to be a list of keys",
		"host_roots: /good":         `host_roots is "/good"`,
	} {
		file := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if faults := config.Check(file, []string{"HOME=/home/x"}); len(faults) != 1 || !strings.Contains(faults[0].Error(), want) {
			t.Errorf("%s: got %v, want %q", text, faults, want)
		}
	}
}
