package cli

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Commands returns the tree of commands for the generated documentation.
func Commands() *cobra.Command {
	return (&call{App: app.New(nil, nil, nil, nil)}).root()
}

// root builds the tree of commands.
func (a *call) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sandboxmcp",
		Short: "Run untrusted code in a real sandbox",
		Long: `sandboxmcp runs untrusted Python, Node.js and shell code behind walls that the
Linux kernel enforces. It returns the output, the files and a signed receipt. It
is an MCP server for agents, a command line and a Go library.`,
		Example: `  sandboxmcp demo                      see it work
  sandboxmcp run -c 'print(6*7)'       run a piece of Python
  sandboxmcp serve                     be an MCP server on stdin and stdout`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return app.Usage(unknown(cmd, args[0]))
			}
			return app.Usage("a command is missing")
		},
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return app.Usage(flagFailure(err)) })
	root.AddGroup(&cobra.Group{ID: "use", Title: "Running code:"}, &cobra.Group{ID: "look", Title: "Looking at it:"})
	for _, c := range []*cobra.Command{a.runCommand(), a.sessionCommand(), a.filesCommand(), a.bridgeCommand(), a.artifactsCommand(), a.verifyCommand(), a.cancelCommand(), a.vaultCommand(), a.demoCommand(), a.serveCommand(), a.setupCommand(), a.egressCommand()} {
		c.GroupID = "use"
		root.AddCommand(c)
	}
	for _, c := range []*cobra.Command{a.runtimesCommand(), a.inspectCommand(), a.auditCommand(), a.queueCommand(), a.statsCommand(), a.doctorCommand(), a.configCommand(), a.versionCommand()} {
		c.GroupID = "look"
		root.AddCommand(c)
	}
	a.guardCommands(root)
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(a.helpCommand())
	root.AddCommand(a.completionCommand(), a.backgroundCommand())
	return root
}

// flagFailure describes a flag error in the user's terms, without the names of Go's
// parsers.
func flagFailure(err error) string {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err.Error()
	}
	f := bad.GetFlag()
	kind := "another value"
	switch f.Value.Type() {
	case "int", "int64":
		kind = "a whole number above 0"
	case "float64":
		kind = "a number above 0"
	case "bool":
		kind = "true or false"
	}
	text := "--" + f.Name + " must be " + kind + ", not " + sandboxmcp.Quote(bad.GetValue())
	if errors.Is(err, strconv.ErrRange) {
		text += ", which is far too large"
	}
	return text
}

// unknown describes a word that is not a command, and suggests similar commands.
func unknown(cmd *cobra.Command, word string) string {
	text := "unknown command " + strconv.Quote(word) + " for " + strconv.Quote(cmd.CommandPath())
	if names := near(cmd, word); len(names) > 0 {
		text += ", did you mean " + names[0] + "?"
	}
	return text
}

// near returns the subcommands that are similar to a word.
func near(cmd *cobra.Command, word string) []string {
	cmd.SuggestionsMinimumDistance = 2
	return cmd.SuggestionsFor(word)
}

// group makes a command that only has subcommands.
func (a *call) group(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return app.Usage(unknown(cmd, args[0]))
		}
		return app.Usage("the part after " + strconv.Quote(cmd.CommandPath()) + " is missing")
	}
	cmd.AddCommand(subs...)
	return cmd
}

// does sets the function that a command runs.
func (a *call) does(cmd *cobra.Command, work func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.started = true
		return work(cmd.Context(), args)
	}
	cmd.DisableFlagsInUseLine = true
	return cmd
}

// withSettings adds the flag --config and sets the function that a command runs with the
// settings.
func (a *call) withSettings(cmd *cobra.Command, work func(ctx context.Context, cfg *config.Config, args []string) error) *cobra.Command {
	a.withConfig(cmd)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		return work(ctx, cfg, args)
	})
}

// inNamespace reads the settings and applies the flag --namespace.
func (a *call) inNamespace(cmd *cobra.Command, name string) (*config.Config, error) {
	cfg, err := a.Load()
	if err == nil && cmd.Flags().Changed("namespace") {
		cfg.Namespace, err = sandboxmcp.ParseNamespace(name)
	}
	return cfg, err
}

// takes requires one argument for each name.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return app.Usage(names[len(args)] + " is missing")
		case len(args) > len(names):
			return app.Usage(strconv.Quote(args[len(names)]) + " is one argument too many")
		}
		return nil
	}
}

// withJSON adds the flag --json.
func (a *call) withJSON(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&a.json, "json", false, "print one JSON document")
	return cmd
}

// withConfig adds the flag --config.
func (a *call) withConfig(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.Settings, "config", "", "read settings from the YAML `FILE`")
}
