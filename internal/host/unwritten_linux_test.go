package host_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/host"
)

// TestWhatAnApprovedCommandNamesOpensNoProgram: if a command may write in a directory, what the server executes or trusts below that stays as it is.
func TestWhatAnApprovedCommandNamesOpensNoProgram(t *testing.T) {
	if !haveLandlock() {
		t.Skip("the kernel has no Landlock")
	}
	var tool string
	b := open(t, func(c *host.Config) {
		root := c.Roots[0]
		tool = filepath.Join(root, "rule/tool")
		if err := os.MkdirAll(filepath.Dir(tool), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(tool, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		c.AutoApprove, c.Allowed, c.Started, c.Obeyed = true, []string{tool}, []string{filepath.Join(root, "started")}, []string{filepath.Join(root, "proofs/checkpoints")}
		c.Found = func(context.Context) ([]string, error) { return []string{filepath.Join(root, "found/deep")}, nil }
	})
	for path, closed := range map[string]bool{b.file("started/python3", "old"): true, b.file("found/deep/node", "old"): true, b.file("proofs/checkpoints", "old"): true, tool: true, b.file("other/f", "old"): false} {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		from := b.file("from/"+filepath.Base(path), "new")
		write := []string{"python3", "-c", "open('" + path + "', 'w').write(open('" + from + "').read())", b.root}
		if out, err := b.Exec(t.Context(), caller, sandboxmcp.HostCommand{Argv: write}, noMasks{}); err != nil || out.Success == closed {
			t.Errorf("%s: got %+v, %v, want it to succeed: %t", path, out, err, !closed)
		}
		after, err := os.ReadFile(path)
		if err != nil || (string(after) == string(before)) != closed {
			t.Errorf("%s: got %q, %v, want it unchanged: %t", path, after, err, closed)
		}
	}
}
