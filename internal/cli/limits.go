package cli

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *app) limitsCommand() *cobra.Command {
	var (
		l         sandboxmcp.Limits
		reset     bool
		namespace string
	)
	cmd := &cobra.Command{
		Use:   "limits",
		Short: "Show or set the limits of a namespace",
		Long: `Sets limits that hold for every run and every new session of a namespace that
asks for none itself, keeps them in the state directory, and shows what held
before and holds now. Running servers go by them from their next request on;
sessions that exist keep those that they were made with. Without a limit nothing
is changed. A limit above its ceiling is refused; one above a ceiling that was
lowered later holds as far as that. Off a terminal, and with --json, it is one
JSON document.`,
		Example: `  sandboxmcp limits
  sandboxmcp limits --ram 1024 --timeout 120
  sandboxmcp limits --reset`,
		Args: takes(),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.IntVar(&l.MaxRAMMB, "ram", 0, "`MIB` of memory, files included")
	f.Float64Var(&l.MaxCPUCores, "cpu", 0, "how many `CORES`, fractions allowed")
	f.Float64Var(&l.TimeoutSeconds, "timeout", 0, "end a run after `SECONDS`")
	f.IntVar(&l.MaxProcesses, "processes", 0, "at most `N` processes")
	f.Int64Var(&l.MaxOutputBytes, "output", 0, "keep so many `BYTES` of each stream")
	f.BoolVar(&reset, "reset", false, "keep none: what the settings say holds again")
	f.StringVar(&namespace, "namespace", "", "of the namespace `NAME`")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		for flag, value := range map[string]float64{"ram": float64(l.MaxRAMMB), "cpu": l.MaxCPUCores, "timeout": l.TimeoutSeconds, "processes": float64(l.MaxProcesses), "output": float64(l.MaxOutputBytes)} {
			if f.Changed(flag) && (!(value > 0) || math.IsInf(value, 0)) {
				return usage("--" + flag + " has to be above 0")
			}
		}
		if reset && l != (sandboxmcp.Limits{}) {
			return usage("--reset stands alone: set limits afterwards")
		}
		cfg, err := a.load()
		if err != nil {
			return err
		}
		if f.Changed("namespace") {
			if cfg.Namespace, err = sandboxmcp.ParseNamespace(namespace); err != nil {
				return err
			}
		}
		done, err := a.setLimits(ctx, cfg, sandboxmcp.LimitsChange{Limits: l, Reset: reset, Strict: true})
		if err != nil {
			return err
		}
		a.showLimits(done)
		return nil
	})
}

// setLimits changes the limits in the state directory, or tells them, and asks
// the running servers as well: one whose record is elsewhere keeps its own, and
// one whose settings differ says what holds there.
func (a *app) setLimits(ctx context.Context, cfg *config.Config, c sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	_, missing := os.Stat(cfg.StateDir)
	show := c.Limits == (sandboxmcp.Limits{}) && !c.Reset
	inMemory := cfg.Audit == "memory"
	var done sandboxmcp.LimitsChanged
	known := true
	switch {
	case inMemory:
		known = false
	case show && errors.Is(missing, fs.ErrNotExist):
		done = sandboxmcp.LimitsChanged{Previous: cfg.Limits(), Current: cfg.Limits(), Clamped: []string{}}
	default:
		err := a.withEngine(ctx, cfg, func(e runner) (err error) {
			done, err = e.SetLimits(ctx, me(cfg), c)
			return err
		})
		if err != nil {
			return done, err
		}
	}
	peers, err := a.servers(ctx, cfg, place{})
	if err != nil {
		return done, err
	}
	for _, p := range peers {
		there, err := p.SetLimits(ctx, me(cfg), c)
		switch {
		case err != nil && !known && len(peers) == 1:
			return done, err
		case err != nil:
			a.say("server " + p.Peer().ID + ": " + err.Error())
		case !known:
			done, known = there, true
		case there.Current != done.Current:
			a.say("in server " + p.Peer().ID + " others hold, by its own settings: " + limitText(there.Current))
		}
	}
	if !known && show {
		return sandboxmcp.LimitsChanged{Previous: cfg.Limits(), Current: cfg.Limits(), Clamped: []string{}}, nil
	}
	if !known {
		return done, sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "nobody could keep the limits: by the setting audit nothing is kept but in running servers, and none answered").
			WithHint("start a server first, or set the limits in its settings")
	}
	return done, nil
}

// limitsOf are the limits in force for a namespace, as far as the state
// directory knows.
func (a *app) limitsOf(ctx context.Context, cfg *config.Config, ns sandboxmcp.Namespace) (l sandboxmcp.Limits, err error) {
	if _, missing := os.Stat(cfg.StateDir); errors.Is(missing, fs.ErrNotExist) || cfg.Audit == "memory" {
		return cfg.Limits(), nil
	}
	err = a.withEngine(ctx, cfg, func(e runner) error {
		now, failed := e.SetLimits(ctx, sandboxmcp.Caller{Namespace: ns, Actor: api.Actor}, sandboxmcp.LimitsChange{})
		l = now.Current
		return failed
	})
	return l, err
}

func (a *app) showLimits(d sandboxmcp.LimitsChanged) {
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
