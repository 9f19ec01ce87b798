package cli

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// Commands returns the tree of commands for the generated documentation.
func Commands() *cobra.Command {
	return (&call{App: app.New(nil, nil, nil, nil)}).root("")
}

// root builds the tree of commands. If word is the name of a command, only that one is in it,
// because building all of them takes longer than many a command.
func (a *call) root(word string) *cobra.Command {
	var version bool // cobra's own --version would link text/template, which costs 2 MB
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
			if version {
				a.print(versionLine())
				return nil
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print the version, as the command version does")
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return app.Usage(flagFailure(err)) })
	root.AddGroup(&cobra.Group{ID: "use", Title: "Running code:"}, &cobra.Group{ID: "look", Title: "Looking at it:"})
	all := a.commands()
	_, one := all[word]
	for name, c := range all {
		if one && name != word {
			continue
		}
		cmd := c.build()
		cmd.GroupID = c.group
		root.AddCommand(cmd)
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(a.helpCommand())
	root.AddCommand(a.completionCommand(), a.backgroundCommand())
	return root
}

// command builds a command of one of the groups in the help.
type command struct {
	group string
	build func() *cobra.Command
}

// commands returns the commands that the help lists, by name.
func (a *call) commands() map[string]command {
	return map[string]command{
		"run":       {"use", a.runCommand},
		"validate":  {"use", a.validateCommand},
		"session":   {"use", a.sessionCommand},
		"files":     {"use", a.filesCommand},
		"bridge":    {"use", a.bridgeCommand},
		"artifacts": {"use", a.artifactsCommand},
		"verify":    {"use", a.verifyCommand},
		"cancel":    {"use", a.cancelCommand},
		"vault":     {"use", a.vaultCommand},
		"demo":      {"use", a.demoCommand},
		"serve":     {"use", a.serveCommand},
		"server":    {"use", a.serverCommand},
		"mcp":       {"use", a.mcpCommand},
		"setup":     {"use", a.setupCommand},
		"image":     {"use", a.imageCommand},
		"install":   {"use", a.installCommand},
		"packages":  {"use", a.packagesCommand},
		"egress":    {"use", a.egressCommand},
		"web":       {"use", a.webCommand},
		"host":      {"use", a.hostCommand},
		"runtimes":  {"look", a.runtimesCommand},
		"inspect":   {"look", a.inspectCommand},
		"audit":     {"look", a.auditCommand},
		"queue":     {"look", a.queueCommand},
		"stats":     {"look", a.statsCommand},
		"doctor":    {"look", a.doctorCommand},
		"config":    {"look", a.configCommand},
		"db":        {"look", a.dbCommand},
		"version":   {"look", a.versionCommand},
		"limits":    {"look", a.limitsCommand},
		"events":    {"look", a.eventsCommand},
	}
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
	case "duration":
		kind = "a time such as 30m or 24h"
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
	names := near(cmd, word)
	switch len(names) {
	case 0:
		return text
	case 1:
		return text + ", did you mean " + names[0] + "?"
	}
	return text + ", did you mean one of " + strings.Join(names, ", ") + "?"
}

// near returns the subcommands that are similar to a word.
func near(cmd *cobra.Command, word string) []string {
	cmd.SuggestionsMinimumDistance = 2
	return cmd.SuggestionsFor(word)
}

// group makes a command that only has subcommands. Without one it prints its help.
func (a *call) group(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return app.Usage(unknown(cmd, args[0]))
		}
		return cmd.Help()
	}
	cmd.DisableFlagsInUseLine = true
	cmd.AddCommand(subs...)
	return cmd
}

// does sets the function that a command runs.
func (a *call) does(cmd *cobra.Command, work func(ctx context.Context, args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.started = true
		if err := refuseEmpty(cmd.Flags()); err != nil {
			return err
		}
		return inFlags(cmd.Flags(), work(cmd.Context(), args))
	}
	cmd.DisableFlagsInUseLine = true
	return cmd
}

// refuseEmpty refuses an empty text for each flag that would then count as not given. An empty text
// usually comes from a shell variable that is not set. An empty program or reason is one, and names and
// ids are checked where they are read.
func refuseEmpty(f *pflag.FlagSet) error {
	if f.Changed("session") {
		if _, err := sandboxmcp.ParseSessionID(f.Lookup("session").Value.String()); err != nil {
			return err
		}
	}
	var err error
	f.Visit(func(l *pflag.Flag) {
		if l.Value.Type() == "string" && l.Value.String() == "" && !slices.Contains([]string{"code", "id", "name", "reason"}, l.Name) {
			err = app.Usage("--" + l.Name + " is empty")
		}
	})
	return err
}

// flagNames lists the flags whose values errors call by another name: that name, and the flag.
var flagNames = [][2]string{
	{"max_ram_mb", "ram"},
	{"max_cpu_cores", "cpu"},
	{"timeout_seconds", "timeout"},
	{"max_processes", "processes"},
	{"max_output_bytes", "output"},
	{"max_output_bytes", "max-output"},
	{"max_results", "max-results"},
	{"wait_until", "wait-until"},
}

// inFlags returns err. If err refuses the value of a flag in flagNames, the message names the command's flags.
func inFlags(f *pflag.FlagSet, err error) error {
	e, ok := errors.AsType[*sandboxmcp.Error](err)
	if !ok || !refusesValue(e.Code) {
		return err
	}
	var names []string
	about := false
	for _, l := range flagNames {
		if f.Lookup(l[1]) != nil {
			names = append(names, l[0], "--"+l[1])
			about = about || f.Changed(l[1]) && strings.HasPrefix(strings.ReplaceAll(e.Message, ",", " "), l[0]+" ")
		}
	}
	if !about { // it may be about a setting of the same name
		return err
	}
	named := *e
	named.Message = strings.NewReplacer(names...).Replace(e.Message)
	return &named
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

// onEngine adds the flags --json and --config, and sets the function that a command runs with
// an engine and the caller at the terminal.
func (a *call) onEngine(cmd *cobra.Command, work func(ctx context.Context, e app.Engine, who sandboxmcp.Caller, args []string) error) *cobra.Command {
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, args []string) error {
		return a.WithEngine(ctx, cfg, func(e app.Engine) error { return work(ctx, e, app.Me(cfg), args) })
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
