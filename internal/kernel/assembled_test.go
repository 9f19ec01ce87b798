package kernel_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/kernel/assemble"
)

// TestAssembledTexts: the drivers' texts are those of their parts.
func TestAssembledTexts(t *testing.T) {
	want, err := assemble.Texts("drivers")
	if err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob("assembled/*")
	if err != nil || len(found) != len(want) {
		t.Errorf("got %v, %v, want %d files", found, err, len(want))
	}
	for name, text := range want {
		if got, err := os.ReadFile(filepath.Join("assembled", name)); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s is not what its parts give (%v); run make generate", name, err)
		}
	}
}
