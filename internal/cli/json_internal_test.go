package cli

import (
	"testing"

	"github.com/spf13/cobra"
)

// TestEveryCommandHasJSON: each command that prints an answer has the flag --json. The others are
// listed with the reason.
func TestEveryCommandHasJSON(t *testing.T) {
	without := map[string]string{
		"sandboxmcp help":       "prints a page to read",
		"sandboxmcp completion": "prints a script of a shell",
		"sandboxmcp serve":      "speaks MCP on stdout",

		"sandboxmcp config schema": "prints a JSON document anyway",
	}
	seen := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.HasSubCommands() || cmd.Hidden {
			return
		}
		seen++
		_, excused := without[cmd.CommandPath()]
		delete(without, cmd.CommandPath())
		if has := cmd.Flags().Lookup("json") != nil; has == excused {
			t.Errorf("%s: got --json %t, want %t", cmd.CommandPath(), has, !excused)
		}
	}
	root := Commands()
	root.InitDefaultHelpCmd()
	walk(root)
	if seen < 50 || len(without) > 0 {
		t.Errorf("got %d commands and none like %v, want at least 50 and those", seen, without)
	}
}
