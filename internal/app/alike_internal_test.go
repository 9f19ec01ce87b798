package app

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// TestADigestFollowsTheSettings: a server that has reloaded its settings has another digest at once, and none while
// they are not settled.
func TestADigestFollowsTheSettings(t *testing.T) {
	load := func(timeout string) *config.Config {
		cfg, err := config.Load(config.Sources{Env: []string{"HOME=" + t.TempDir()}, Flags: map[string]string{"timeout_seconds": timeout}})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	one, two := load("7"), load("8")
	now := one
	of := digestOf("self", nil, func() *config.Config { return now })
	for _, step := range []struct {
		cfg  *config.Config
		want string
	}{{one, digest("self", nil, one)}, {one, digest("self", nil, one)}, {two, digest("self", nil, two)}, {nil, ""}, {one, digest("self", nil, one)}} {
		now = step.cfg
		if got := of(); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
	if digest("self", nil, one) == digest("self", nil, two) {
		t.Error("got one digest for two settings, want two")
	}
}
