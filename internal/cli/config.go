package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show every setting and where it comes from",
		Long: `Shows the value of every setting and whether it comes from a flag, the
environment, the YAML file of --config, or the default. Secrets are not shown. Off
a terminal, and with --json, it prints one JSON document. The subcommands check a
file of settings.`,
		Example: `  sandboxmcp config
  SANDBOXMCP_TIMEOUT=10 sandboxmcp config --config settings.yaml --json
  sandboxmcp config check settings.yaml`,
		Args: takes(),
	}
	cmd.AddCommand(a.configCheckCommand(), a.configSchemaCommand())
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(context.Context, []string) error {
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		if a.document() {
			a.printJSON(settings(cfg))
			return nil
		}
		rows := [][]string{{"SETTING", "VALUE", "SOURCE", "VARIABLE"}}
		for _, v := range cfg.Values() {
			rows = append(rows, []string{v.Key, shown(v.Value), string(v.Source), v.Env})
		}
		a.table(rows)
		return nil
	})
}

// setting is a setting as `config --json` prints it.
type setting struct {
	Value  any           `json:"value"`
	Source config.Source `json:"source"`
}

func settings(cfg *config.Config) map[string]setting {
	doc := map[string]setting{}
	for _, v := range cfg.Values() {
		doc[v.Key] = setting{v.Value, v.Source}
	}
	return doc
}

func (a *call) configCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a file of settings",
		Long: `Reads a YAML file of settings as --config does, and shows each fault with its line:
unknown settings, illegal values, limits above their ceilings. Variables of the
environment play no part. Exits with 2 if there is a fault.`,
		Example: `  sandboxmcp config check settings.yaml`,
		Args:    takes("FILE"),
	}
	a.withJSON(cmd)
	return a.does(cmd, func(_ context.Context, args []string) error {
		faults := config.Check(args[0], a.Env)
		bodies := make([]map[string]any, 0, len(faults))
		for _, err := range faults {
			bodies = append(bodies, a.pasted(sandboxmcp.AsError(err)).Body())
			a.status = exitUsage
		}
		return a.answer(a.json, map[string]any{"file": args[0], "ok": len(faults) == 0, "faults": bodies}, func() {
			for _, err := range faults {
				a.failure(sandboxmcp.AsError(err))
			}
			if len(faults) == 0 {
				a.print(app.Clean(args[0]+" is right") + "\n")
			}
		})
	})
}

func (a *call) configSchemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a file of settings",
		Long: `Prints the JSON Schema of a file of settings. An editor with a YAML language server
uses it if the file begins with a line such as
"# yaml-language-server: $schema=sandboxmcp.schema.json".`,
		Example: `  sandboxmcp config schema > sandboxmcp.schema.json`,
		Args:    takes(),
	}
	return a.does(cmd, func(context.Context, []string) error {
		text, err := config.Schema()
		if err != nil {
			return err
		}
		a.print(string(text))
		return nil
	})
}
