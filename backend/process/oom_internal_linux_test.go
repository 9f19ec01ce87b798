package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestInitIsFirstOutOfMemory: with and without namespaces the kernel ends what belongs to
// a sandbox before the server.
func TestInitIsFirstOutOfMemory(t *testing.T) {
	for name, change := range map[string]func(*Config){"namespaces": func(*Config) {}, "plain": WithoutNamespaces} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{MinTier: sandboxmcp.TierL1, TempDir: t.TempDir()}
			for _, dir := range []string{cfg.TempDir, filepath.Dir(cfg.TempDir)} { // the sandbox's user has to pass through
				if err := os.Chmod(dir, 0o711); err != nil {
					t.Fatal(err)
				}
			}
			change(&cfg)
			b := New(cfg)
			defer func() { _ = b.Close(t.Context()) }()
			sb, err := b.Open(t.Context(), trialSpec("memory"))
			if err != nil {
				t.Skipf("no sandbox can be built here: %v", err)
			}
			defer func() { _ = sb.Close(t.Context()) }()
			score, err := os.ReadFile("/proc/" + strconv.Itoa(sb.(*sandbox).slot.PID()) + "/oom_score_adj")
			if got := strings.TrimSpace(string(score)); err != nil || got != "1000" {
				t.Errorf("oom_score_adj: got %q, %v, want 1000", got, err)
			}
		})
	}
}
