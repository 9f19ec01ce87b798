package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/environment"
)

// demoOptions are the flags of the demo.
type demoOptions struct {
	out     string
	science bool
}

// chartTimeout bounds the drawing program in seconds. It allows for packages on a slow
// disk.
const chartTimeout = 30

// chartProgram simulates hares and lynxes, and draws them as a picture and as text for a
// terminal.
const chartProgram = `import time
began = time.perf_counter()
import numpy, pandas, matplotlib
import matplotlib.pyplot as plot
print("pandas %s and matplotlib %s, imported in %d ms" % (pandas.__version__, matplotlib.__version__, (time.perf_counter() - began) * 1000))
step, rows, both = 0.01, [], numpy.array([30.0, 4.0])
for n in range(3000):
    hares, lynxes = both
    rows.append((n * step, hares, lynxes))
    both = both + step * numpy.array([hares * (0.9 - 0.06 * lynxes), lynxes * (0.02 * hares - 0.6)])
table = pandas.DataFrame(rows, columns=["year", "hares", "lynxes"]).set_index("year")
axes = table.plot(figsize=(8, 3.5), color=["peru", "slategray"], title="Hares and lynxes, drawn in a sandbox")
axes.set_ylabel("thousands")
plot.tight_layout()
plot.savefig("chart.png", dpi=120)
for year in range(0, 30, 3):
    hares, lynxes = table.iloc[year * 100]
    line = [" "] * 61
    line[min(60, int(hares / 2))], line[min(60, int(lynxes / 2))] = "h", "l"
    print("%3d |%s" % (year, "".join(line).rstrip()))
`

// demoChart draws a chart if the packages are installed or can be installed.
func (a *call) demoChart(ctx context.Context, cfg *config.Config, e app.Engine, o demoOptions, report *demoReport) error {
	a.print(a.paint(bold, "── chart") + "\n")
	defer a.print("\n")
	there, err := a.demoPackages(ctx, cfg, e, o)
	if err != nil || !there {
		return err
	}
	began := time.Now()
	res, err := e.Execute(ctx, app.Me(cfg), sandboxmcp.Request{
		Code: chartProgram, Language: sandboxmcp.Python,
		Limits: sandboxmcp.Limits{TimeoutSeconds: min(chartTimeout, cfg.Limits().TimeoutSeconds)},
	})
	if err != nil {
		return err
	}
	verified := a.showDemo(cfg, res, time.Since(began))
	report.Runs = append(report.Runs, demoRun{Name: "chart", Result: &res, ReceiptVerified: verified})
	if !res.Success {
		a.status = 1
		return nil
	}
	if o.out == "" {
		a.print(a.Paste("get it: `sandboxmcp artifacts " + string(res.RequestID) + " --out .`\n"))
		return nil
	}
	dir, err := openOut(o.out)
	if err != nil {
		return err
	}
	defer dir.close()
	if a.copyOut(ctx, e, dir, res) {
		a.print("look at it: " + filepath.Join(o.out, "chart.png") + "\n")
	}
	return nil
}

// demoPackages reports whether the packages are installed, and with --science installs
// them. If they cannot be installed, it prints why and returns no error.
func (a *call) demoPackages(ctx context.Context, cfg *config.Config, e app.Engine, o demoOptions) (bool, error) {
	recipe, err := environment.FindRecipe("science")
	if err != nil {
		return false, err
	}
	python, err := a.Python(ctx, cfg)
	if sandboxmcp.CodeOf(err) == sandboxmcp.CodeRuntimeUnavailable {
		a.print("not drawn: " + app.Clean(sandboxmcp.AsError(err).Message) + "\n")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	library := environment.New(environment.Config{Dir: environment.Dir(cfg.StateDir)})
	if slices.ContainsFunc(library.Active(python), func(s environment.Set) bool { return s.Name == recipe.Name }) {
		return true, nil
	}
	if !o.science {
		a.print(a.Paste("not drawn: `sandboxmcp setup " + recipe.Name + "` installs the packages that it needs\n"))
		return false, nil
	}
	a.print("fetching " + strings.Join(recipe.Packages, ", ") + " as wheels, once\n")
	began := time.Now()
	report, err := library.Install(ctx, environment.Order{Recipe: recipe, Python: python, Env: a.Env, Avoid: app.Changeable(cfg), Hurry: true, Say: a.Progress})
	if err == nil {
		err = a.Tried(ctx, e, library, report.Set, recipe)
	}
	if err != nil {
		if sandboxmcp.CodeOf(err) == sandboxmcp.CodeCancelled {
			return false, err
		}
		e := sandboxmcp.AsError(err)
		a.print("not drawn: " + app.OneLine(e.Message) + " (" + app.OneLine(e.Hint) + ")\n")
		return false, nil
	}
	a.print(fmt.Sprintf("fetched %d wheels, %d MiB, checked and installed by their hashes in %.0f s:\n", len(report.Set.Wheels), report.Fetched>>20, time.Since(began).Seconds()))
	for _, w := range report.Set.Wheels {
		a.print("   " + w.SHA256[:16] + "  " + w.Name + " " + w.Version + "\n")
	}
	return true, nil
}
