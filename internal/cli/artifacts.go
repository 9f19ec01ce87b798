package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// record is a stored execution as --json shows it: its result and a manifest of its
// files.
type record struct {
	sandboxmcp.Result
	Manifest map[string]string `json:"manifest"` // name to SHA-256
}

func (a *call) artifactsCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "artifacts REQUEST_ID",
		Short: "Show the result and the files of a run",
		Long: `Shows the result of an earlier run, its files and their SHA-256. The running
servers of the state directory are asked first, so a run that has not ended is
shown with status running. --out copies the files into a directory, where they
replace files of the same names: the program chose the names. Off a terminal, and
with --json, it prints one JSON document that includes the content of the files.`,
		Example: `  sandboxmcp artifacts 0f8c9f0e-6d0b-4f0e-9d3b-1a2b3c4d5e6f --out results`,
		Args:    takes("REQUEST_ID"),
	}
	cmd.Flags().StringVar(&out, "out", "", "copy the files into `DIR`")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		id, err := sandboxmcp.ParseRequestID(args[0])
		if err != nil {
			return err
		}
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		q := sandboxmcp.Lookup{RequestID: id, Content: true}
		res, found, served := a.AskServers(ctx, cfg, q)
		if found {
			return a.handOut(ctx, nil, out, res)
		}
		return a.WithEngine(ctx, cfg, func(e app.Engine) error {
			res, err := e.Lookup(ctx, app.Me(cfg), q)
			if served != nil && sandboxmcp.CodeOf(err) == sandboxmcp.CodeRequestNotFound {
				return served
			}
			if err != nil {
				return err
			}
			return a.handOut(ctx, e, out, res)
		})
	})
}

// handOut prints a result and, with --out, first copies its files. e may be nil if the
// result includes the content of its files.
func (a *call) handOut(ctx context.Context, e app.Engine, out string, res sandboxmcp.Result) error {
	dir, err := openOut(out)
	if err != nil {
		return err
	}
	defer dir.close()
	if dir != nil && !a.copyOut(ctx, e, dir, res) {
		a.status = 1
	}
	a.showRecord(res)
	return nil
}

func (a *call) showRecord(res sandboxmcp.Result) {
	if a.document() {
		manifest := map[string]string{}
		for _, f := range res.Artifacts {
			manifest[f.Name] = f.SHA256
		}
		a.printJSON(record{res, manifest})
		return
	}
	if res.Status == sandboxmcp.StatusRunning {
		a.print("request " + string(res.RequestID) + ": " + string(res.Language) + ", " + string(res.Status) + "\n")
		return
	}
	rows := [][]string{{"NAME", "BYTES", "TYPE", "SHA-256"}}
	for _, f := range res.Artifacts {
		rows = append(rows, []string{f.Name, strconv.FormatInt(f.SizeBytes, 10), f.MIMEType, f.SHA256})
	}
	a.print("request " + string(res.RequestID) + ": " + string(res.Language) + ", " + string(res.Status) + ", exit code " + strconv.Itoa(res.ExitCode) + "\n")
	if len(res.Artifacts) == 0 {
		a.print("it left no files\n")
		return
	}
	a.table(rows)
}
