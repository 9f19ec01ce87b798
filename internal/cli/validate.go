package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

func (a *call) validateCommand() *cobra.Command {
	o := &runOptions{}
	fix, noFix := true, false
	cmd := &cobra.Command{
		Use:   "validate SCRIPT | -",
		Short: "Check a program without running it",
		Long: `Parses a program without running it, and looks for calls that are often
dangerous. Its language is that of -l, else as for "run". It corrects what it can:
missing imports of the standard library, typographic quotes, tabs, markdown
fences. The corrected program is in fixed_code of the --json document; the file is
not changed.

Dangerous calls are warnings. With the setting reject_dangerous they are errors,
and "run" refuses such programs. They are hints: what a program can do is decided
by its sandbox.

The exit status is 0 if the program is valid and 1 if it is not.`,
		Example: `  sandboxmcp validate report.py
  sandboxmcp validate deploy.sh --json
  echo 'print(math.pi)' | sandboxmcp validate - --no-auto-fix`,
		Args: takes("script"),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.language, "language", "l", "", "`LANGUAGE` of the program: python, node or shell")
	f.BoolVar(&fix, "auto-fix", true, "correct what can be corrected")
	f.BoolVar(&noFix, "no-auto-fix", false, "correct nothing")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if err := o.check(args, f.Changed); err != nil {
			return err
		}
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		req, err := a.request(ctx, o, cfg)
		if err != nil {
			return err
		}
		return a.WithEngine(ctx, cfg, func(e app.Engine) error {
			r, err := e.Validate(ctx, app.Me(cfg), sandboxmcp.CodeCheck{Code: req.Code, Language: req.Language, NoFix: noFix || !fix})
			if err != nil {
				return err
			}
			if !r.Valid {
				a.status = 1
			}
			return a.answer(a.json, r, func() { a.showReport(r) })
		}, req.Language)
	})
}

// showReport prints a verdict, and a line for each issue and fix.
func (a *call) showReport(r sandboxmcp.CodeReport) {
	a.print(string(r.Verdict) + "\n")
	for _, i := range r.Issues {
		a.print("  " + strconv.Itoa(i.Line) + ":" + strconv.Itoa(i.Col) + "  " + string(i.Severity) + "  " + app.Clean(i.Message) + "  [" + i.Rule + "]" + "\n")
	}
	for _, f := range r.FixesApplied {
		a.print("  fixed: " + app.Clean(f) + "\n")
	}
}
