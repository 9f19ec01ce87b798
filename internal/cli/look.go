package cli

import (
	"context"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) runtimesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runtimes",
		Short: "Show which languages can be run",
		Long: `Shows the interpreters that programs are run with, and the backends with the walls
that they were observed to build. For anything missing it prints how to get it.`,
		Example: `  sandboxmcp runtimes`,
		Args:    takes(),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		return a.WithEngine(ctx, cfg, func(e app.Engine) error {
			r, err := e.Runtimes(ctx)
			if err != nil {
				return err
			}
			return a.answer(a.json, r, func() { a.showRuntimes(r) })
		})
	})
}

func (a *call) showRuntimes(r sandboxmcp.Runtimes) {
	rows := [][]string{{"LANGUAGE", "VERSION", "PATH", "PACKAGES"}}
	for _, l := range r.Runtimes {
		version, path := l.Version, l.Path
		if !l.Available {
			version, path = "missing", l.Hint
		}
		rows = append(rows, []string{string(l.Language), version, path, strings.Join(l.PackagesPreloaded, " ")})
	}
	a.table(rows)
	a.print("\n")
	rows = [][]string{{"BACKEND", "TIER", "WALLS"}}
	for _, b := range r.Backends {
		tier, walls := "-", b.Reason
		if b.Available && b.Isolation != nil {
			tier, walls = string(b.Isolation.Tier), wallList(b.Isolation.Walls)
		}
		rows = append(rows, []string{b.Name, tier, walls})
	}
	a.table(rows)
}

func (a *call) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can isolate and run",
		Long: `Checks every isolation wall, limit and interpreter on this machine, and whether
interpreters can be started ahead. For anything missing it prints the reason and
the fix. Exits with 1 if something is missing that every run needs.`,
		Example: `  sandboxmcp doctor`,
		Args:    takes(),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		checks, err := a.Doctor(ctx, cfg)
		if err != nil {
			return err
		}
		ready := true
		for _, c := range checks {
			if c.Needed && !c.OK {
				ready, a.status = false, 1
			}
		}
		return a.answer(a.json, map[string]any{"ok": ready, "version": app.Version(), "checks": checks}, func() { a.showChecks(checks) })
	})
}

func (a *call) showChecks(checks []sandboxmcp.Check) {
	width := 0
	for _, c := range checks {
		width = max(width, len(c.Name))
	}
	for _, c := range checks {
		word := a.paint(green, "ok     ")
		if !c.OK {
			word = a.paint(red, "missing")
		}
		a.print(word + "  " + app.Clean(c.Name) + strings.Repeat(" ", width-len(c.Name)) + "  " + app.OneLine(c.Detail) + "\n")
		if !c.OK && c.Fix != "" {
			a.print(strings.Repeat(" ", width+11) + "fix: " + app.OneLine(c.Fix) + "\n")
		}
	}
}

func (a *call) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show every setting and where it comes from",
		Long: `Shows the value of every setting and whether it comes from a flag, the
environment, the YAML file of --config, or the default. Secrets are not shown. Off
a terminal, and with --json, it prints one JSON document.`,
		Example: `  sandboxmcp config
  SANDBOXMCP_TIMEOUT=10 sandboxmcp config --config settings.yaml --json`,
		Args: takes(),
	}
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

func (a *call) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Show the version",
		Long:    `Shows the version of the program, its Go version and its platform.`,
		Example: `  sandboxmcp version --json`,
		Args:    takes(),
	}
	a.withJSON(cmd)
	return a.does(cmd, func(context.Context, []string) error {
		platform := runtime.GOOS + "/" + runtime.GOARCH
		return a.answer(a.json, map[string]any{"version": app.Version(), "go": runtime.Version(), "platform": platform}, func() { a.print("sandboxmcp " + app.Version() + " " + runtime.Version() + " " + platform + "\n") })
	})
}
