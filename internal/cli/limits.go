package cli

import (
	"context"
	"math"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

func (a *call) limitsCommand() *cobra.Command {
	var (
		l         sandboxmcp.Limits
		reset     bool
		namespace string
	)
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Show or set the limits of a namespace",
		Long: `Sets limits for every run and new session of a namespace that asks for none
itself, and stores them in the state directory. It shows the limits before and
after; without a limit flag nothing changes. Running servers apply them from their
next request on; existing sessions keep theirs. A limit above its ceiling is
refused. If a ceiling is lowered later, stored limits are capped by it. Off a
terminal, and with --json, it prints one JSON document.`,
		Example: `  sandboxmcp limits
  sandboxmcp limits --ram 1024 --timeout 120
  sandboxmcp limits --reset`,
		Args: takes(),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&l.MaxRAMMB, "ram", 0, "memory in `MIB`, files included")
	f.Float64Var(&l.MaxCPUCores, "cpu", 0, "number of `CORES`, fractions allowed")
	f.Float64Var(&l.TimeoutSeconds, "timeout", 0, "time limit of a run in `SECONDS`")
	f.IntVar(&l.MaxProcesses, "processes", 0, "at most `N` processes")
	f.Int64Var(&l.MaxOutputBytes, "output", 0, "return at most `BYTES` of stdout and of stderr")
	f.BoolVar(&reset, "reset", false, "remove all stored limits, so that those of the settings apply")
	f.StringVar(&namespace, "namespace", "", "limits of the namespace `NAME`")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		for flag, value := range map[string]float64{"ram": float64(l.MaxRAMMB), "cpu": l.MaxCPUCores, "timeout": l.TimeoutSeconds, "processes": float64(l.MaxProcesses), "output": float64(l.MaxOutputBytes)} {
			if f.Changed(flag) && (!(value > 0) || math.IsInf(value, 0)) {
				return app.Usage("--" + flag + " must be above 0")
			}
		}
		if reset && l != (sandboxmcp.Limits{}) {
			return app.Usage("--reset cannot be combined with limits: set them afterwards")
		}
		cfg, err := a.inNamespace(cmd, namespace)
		if err != nil {
			return err
		}
		done, differ, err := a.SetLimits(ctx, cfg, sandboxmcp.LimitsChange{Limits: l, Reset: reset, Strict: true})
		if err != nil {
			return err
		}
		for _, d := range differ {
			a.Say("server " + d.Server + " applies other limits, because of its own settings: " + limitText(d.Limits))
		}
		a.showLimits(done)
		return nil
	})
}

func (a *call) showLimits(d sandboxmcp.LimitsChanged) {
	if a.document() {
		a.printJSON(d)
		return
	}
	p, c := d.Previous, d.Current
	a.table([][]string{
		{"LIMIT", "BEFORE", "NOW"},
		{"memory", shown(p.MaxRAMMB) + " MiB", shown(c.MaxRAMMB) + " MiB"},
		{"cores", shown(p.MaxCPUCores), shown(c.MaxCPUCores)},
		{"timeout", shown(p.TimeoutSeconds) + " s", shown(c.TimeoutSeconds) + " s"},
		{"processes", shown(p.MaxProcesses), shown(c.MaxProcesses)},
		{"output", shown(p.MaxOutputBytes) + " bytes", shown(c.MaxOutputBytes) + " bytes"},
	})
}
