package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
)

// demoTimeout bounds each program in seconds, so that the demo ends within ten seconds.
const demoTimeout = 3

// demoPrograms are the programs of the demo. The first tries to reach the host and a
// network and prints what it found. None of them could do harm without walls.
var demoPrograms = []struct {
	language sandboxmcp.Language
	code     string
}{
	{sandboxmcp.Python, `import os, socket, sys
print("python", sys.version.split()[0], "as user", os.getuid(), "process", os.getpid())
def tried(what, f):
    try:
        f()
        print(" ", what + ": possible")
    except OSError as e:
        print(" ", what + ":", e.strerror or e)
tried("read /etc/shadow", lambda: open("/etc/shadow").read())
tried("write to /usr", lambda: open("/usr/demo", "w"))
tried("look into /home", lambda: os.listdir("/home"))
tried("reach the network", lambda: socket.create_connection(("192.0.2.1", 443), 1))
open("squares.csv", "w").write("".join("%d,%d\n" % (n, n * n) for n in range(10)))
`},
	{sandboxmcp.Node, `console.log('node', process.version, 'as user', process.getuid())
require('fs').writeFileSync('hello.json', JSON.stringify({hello: 'from a sandbox'}))
`},
	{sandboxmcp.Shell, `echo "shell as user $(id -u), $(ls /proc | grep -c '^[0-9]') processes to be seen"
echo "hello from a sandbox" > hello.txt
`},
}

func (a *call) demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a program in each language and show the results",
		Long: `Runs a small Python, Node.js and shell program, each in its own sandbox. It shows
their output, their files, whether the signed receipts verify and which walls
stood. It takes a few seconds and leaves only records of the runs. With the
packages of "setup science" it also draws a chart. --science installs them if they
are missing, which takes half a minute; if that fails, the demo goes on without
the chart.`,
		Example: `  sandboxmcp demo
  sandboxmcp demo --science --out charts`,
		Args: takes(),
	}
	cmd.Flags().StringVar(&o.out, "out", "", "copy the chart into `DIR`")
	cmd.Flags().BoolVar(&o.science, "science", false, "install the packages that the chart needs")
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		var report demoReport
		out := a.Stdout
		if a.json {
			a.Stdout = io.Discard
		}
		err := a.WithEngine(ctx, cfg, func(e app.Engine) error { return a.demo(ctx, cfg, e, o, &report) }, sandboxmcp.Languages()...)
		a.Stdout = out
		if err == nil && a.json {
			a.printJSON(report)
		}
		return err
	})
}

// demoReport is the demo as --json shows it.
type demoReport struct {
	Runs      []demoRun             `json:"runs"`
	Isolation *sandboxmcp.Isolation `json:"isolation"` // of the last run in a language
}

// demoRun is a program of the demo.
type demoRun struct {
	Name            string             `json:"name"`   // its language, or chart
	Result          *sandboxmcp.Result `json:"result"` // nil: it was not run
	ReceiptVerified bool               `json:"receipt_verified"`
	Error           map[string]any     `json:"error,omitempty"` // why it was not run
}

// demo runs the programs, prints what came of them and adds it to the report.
func (a *call) demo(ctx context.Context, cfg *config.Config, e app.Engine, o demoOptions, report *demoReport) error {
	ran := 0
	for _, p := range demoPrograms {
		a.print(a.paint(bold, "── "+string(p.language)) + "\n")
		began := time.Now()
		res, err := e.Execute(ctx, app.Me(cfg), sandboxmcp.Request{
			Code: p.code, Language: p.language,
			Limits: sandboxmcp.Limits{TimeoutSeconds: min(demoTimeout, cfg.Limits().TimeoutSeconds)},
		})
		if sandboxmcp.CodeOf(err) == sandboxmcp.CodeRuntimeUnavailable {
			a.print("not run: " + app.Clean(sandboxmcp.AsError(err).Message) + "\n\n")
			report.Runs = append(report.Runs, demoRun{Name: string(p.language), Error: a.pasted(sandboxmcp.AsError(err)).Body()})
			continue
		}
		if err != nil {
			return err
		}
		verified := a.showDemo(cfg, res, time.Since(began))
		report.Runs = append(report.Runs, demoRun{Name: string(p.language), Result: &res, ReceiptVerified: verified})
		if !res.Success {
			a.status = 1
		}
		ran, report.Isolation = ran+1, res.Isolation
	}
	if ran == 0 {
		return sandboxmcp.Errorf(sandboxmcp.CodeRuntimeUnavailable, "there is no interpreter on this machine")
	}
	if err := a.demoChart(ctx, cfg, e, o, report); err != nil {
		return err
	}
	a.showIsolation(report.Isolation)
	a.print(a.Paste("\nNext: `sandboxmcp run -c 'print(6*7)'`, or `sandboxmcp serve` for an agent\n"))
	return nil
}

// showDemo prints a result, and reports whether its receipt verifies.
func (a *call) showDemo(cfg *config.Config, res sandboxmcp.Result, took time.Duration) (verified bool) {
	for line := range strings.Lines(res.Stdout + res.Stderr) {
		a.print("   " + app.Clean(strings.TrimSuffix(line, "\n")) + "\n")
	}
	a.print(fmt.Sprintf("%s, exit code %d, %d ms\n", res.Status, res.ExitCode, took.Milliseconds()))
	for _, f := range res.Artifacts {
		a.print(fmt.Sprintf("file %s, %s, sha256 %s\n", app.Clean(f.Name), counted(f.SizeBytes, "byte"), f.SHA256))
	}
	text, verified := a.demoReceipt(cfg, res)
	a.print(text + "\n\n")
	return verified
}

// demoReceipt verifies the receipt with the public key only, as another person would.
func (a *call) demoReceipt(cfg *config.Config, res sandboxmcp.Result) (text string, verified bool) {
	if res.Receipt == nil {
		a.status = 1
		return "receipt " + a.paint(red, "missing"), false
	}
	public, err := sign.PublicKey(cfg.StateDir)
	if err == nil {
		_, err = sign.Verify(*res.Receipt, public)
	}
	if err != nil {
		a.status = 1
		return "receipt " + a.paint(red, "MISMATCH") + ": " + app.OneLine(err.Error()), false
	}
	return "receipt " + a.paint(green, "VERIFIED") + " with key " + sign.KeyID(public)[:16], true
}

func (a *call) showIsolation(i *sandboxmcp.Isolation) {
	if i == nil {
		a.status = 1
		a.print("no isolation report\n")
		return
	}
	a.print(a.paint(bold, "── walls that stood") + "\n")
	a.print("tier " + string(i.Tier) + ", backend " + app.Clean(i.Backend) + ", kernel " + app.Clean(i.Kernel) + "\n")
	for _, w := range i.Walls {
		a.print("   " + a.paint(green, "+") + " " + app.Clean(w) + "\n")
	}
	for _, w := range i.Weak {
		a.print("   " + a.paint(red, "-") + " " + app.Clean(w) + "\n")
	}
}
