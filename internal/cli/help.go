package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// helpCommand is the command help. Unlike that of cobra it fails for an unknown command.
func (a *call) helpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Print the help of a command",
		Long:    `Prints the help of a command, as --help after the command does.`,
		Example: `  sandboxmcp help run`,
		Args:    cobra.ArbitraryArgs,
	}
	return a.does(cmd, func(_ context.Context, args []string) error {
		about, rest, err := cmd.Root().Find(args)
		if err != nil || len(rest) > 0 || about == cmd.Root() && len(args) > 0 {
			return app.Usage(unknown(cmd.Root(), strings.Join(args, " ")))
		}
		return about.Help()
	})
}

func (a *call) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	cmd := &cobra.Command{
		Use:   "completion bash | zsh | fish | powershell",
		Short: "Print a completion script for a shell",
		Long: `Prints a script that makes a shell complete commands and flags. Load it
in the shell's start file, or once:

  bash        source <(sandboxmcp completion bash)
  zsh         source <(sandboxmcp completion zsh)
  fish        sandboxmcp completion fish | source
  powershell  sandboxmcp completion powershell | Out-String | Invoke-Expression`,
		Example:   `  sandboxmcp completion bash > ~/.local/share/bash-completion/completions/sandboxmcp`,
		ValidArgs: shells,
		Args:      takes("a shell"),
	}
	return a.does(cmd, func(_ context.Context, args []string) error {
		root := cmd.Root()
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(a.Stdout, true)
		case "zsh":
			return root.GenZshCompletion(a.Stdout)
		case "fish":
			return root.GenFishCompletion(a.Stdout, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(a.Stdout)
		}
		return app.Usage("shell " + args[0] + " is not one of " + strings.Join(shells, ", "))
	})
}
