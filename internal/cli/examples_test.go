package cli_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/shell"

	"github.com/sandboxmcp/sandboxmcp/internal/cli"
)

// TestEveryCommandExplainsItself: it has a short and a long help, and examples that its own
// flags accept.
func TestEveryCommandExplainsItself(t *testing.T) {
	n := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		n++
		if c.Short == "" || c.Long == "" || c.Example == "" {
			t.Errorf("%s: got short %q, long %q and example %q, want all", c.CommandPath(), c.Short, c.Long, c.Example)
		}
		for line := range strings.Lines(c.Example) {
			example(t, c, strings.TrimSpace(line))
		}
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(cli.Commands())
	if n < 60 {
		t.Errorf("got %d commands, want at least 60", n)
	}
}

// example checks that a line calls a command, with flags that it has.
func example(t *testing.T, c *cobra.Command, line string) {
	t.Helper()
	_, call, ok := strings.Cut(line, "sandboxmcp ")
	if !ok {
		t.Errorf("%s: example %q does not call the program", c.CommandPath(), line)
		return
	}
	for _, end := range []string{" | ", " > ", " >", " < ", "   "} { // a pipe, a file or a remark
		call, _, _ = strings.Cut(call, end)
	}
	words, err := shell.Fields(call, func(string) string { return "" })
	if err != nil {
		t.Errorf("%s: example %q: %v", c.CommandPath(), line, err)
		return
	}
	cmd, rest, err := cli.Commands().Find(words)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: example %q: %v", c.CommandPath(), line, err)
	}
}
