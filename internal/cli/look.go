package cli

import (
	"context"
	"runtime"
	"strconv"
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
	var attack bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can isolate and run",
		Long: `Checks every isolation wall, limit and interpreter on this machine, whether
interpreters can be started ahead, and whether the audit record is signed. For
anything missing it prints the reason and the fix. Exits with 1 if something is
missing that every run needs.

With --attack it runs programs that try to get out of a sandbox and to exceed its
limits, and shows what each tried and what came of it. They do no harm, even if
they succeed. If one can read a file of this machine, no more is tried. Exits with
1 if one succeeded, or did not report a refusal.`,
		Example: `  sandboxmcp doctor
  sandboxmcp doctor --attack`,
		Args: takes(),
	}
	cmd.Flags().BoolVar(&attack, "attack", false, "try to get out of a sandbox")
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		if attack {
			return a.attack(ctx, cfg)
		}
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

// attack runs the probes and shows what came of each.
func (a *call) attack(ctx context.Context, cfg *config.Config) error {
	done, err := a.Attack(ctx, cfg)
	if err != nil {
		return err
	}
	if !done.Held {
		a.status = 1
	}
	return a.answer(a.json, done, func() {
		rows := [][]string{}
		held := 0
		for _, f := range done.Findings {
			word := a.paint(red, "OPEN")
			if f.Held {
				word = a.paint(green, "held")
				held++
			}
			rows = append(rows, []string{word, f.Name, f.Tried, app.OneLine(f.Observed)})
		}
		a.grid(rows)
		if i := done.Isolation; i != nil {
			a.print("\n" + string(i.Tier) + " on " + app.Clean(i.Backend) + ": " + strconv.Itoa(held) + " of " + counted(int64(len(done.Findings)), "attempt") + " refused\n")
			for _, w := range i.Weak {
				a.print("weak: " + app.OneLine(w) + "\n")
			}
		}
	})
}

func (a *call) showChecks(checks []sandboxmcp.Check) {
	var rows [][]string
	for _, c := range checks {
		word := a.paint(green, "ok")
		if !c.OK {
			word = a.paint(red, "missing")
		}
		rows = append(rows, []string{word, app.Clean(c.Name), app.OneLine(c.Detail)})
		if !c.OK && c.Fix != "" {
			rows = append(rows, []string{"", "", "fix: " + app.Clean(a.Paste(app.OneLine(c.Fix)))})
		}
	}
	a.grid(rows)
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
		return a.answer(a.json, map[string]any{"version": app.Version(), "go": runtime.Version(), "platform": platform()}, func() { a.print(versionLine()) })
	})
}

func platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

func versionLine() string {
	return "sandboxmcp " + app.Version() + " " + runtime.Version() + " " + platform() + "\n"
}
