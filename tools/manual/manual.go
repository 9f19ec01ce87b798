// Package manual writes the manual pages of the commands.
package manual

import (
	"os"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/sandboxmcp/sandboxmcp/internal/cli"
)

// Write writes a manual page for each command into a directory, which it creates. Two calls
// write the same bytes.
func Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root := cli.Commands()
	root.DisableAutoGenTag = true
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC) // pages must not differ from build to build
	return doc.GenManTree(root, &doc.GenManHeader{Title: "SANDBOXMCP", Section: "1", Source: "sandboxmcp", Manual: "sandboxmcp", Date: &day}, dir)
}
