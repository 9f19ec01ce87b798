package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPagesComeFromTheTables: each page holds what only its table knows.
func TestPagesComeFromTheTables(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{
		"cli.md":    "sandboxmcp run SCRIPT",
		"config.md": "SANDBOXMCP_MAX_RAM_MB",
		"errors.md": "queue_full",
		"tools.md":  "execute_code",
	} {
		got, err := os.ReadFile(filepath.Join(dir, page))
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: got %d bytes and %v, want %q in it", page, len(got), err, want)
		}
	}
}
