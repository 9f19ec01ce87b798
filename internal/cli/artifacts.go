package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
)

// record is a kept execution as it is shown: its result, and a manifest.
type record struct {
	sandboxmcp.Result
	Manifest map[string]string `json:"manifest"` // name to SHA-256
}

func (a *app) artifactsCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "artifacts REQUEST_ID",
		Short: "Show what an earlier run left",
		Long: `Shows the result of an earlier run, the files that it left and their SHA-256, from
the state directory. --out copies the files into a directory. Off a terminal,
and with --json, it is one JSON document with everything, contents included.`,
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
		cfg, err := a.load()
		if err != nil {
			return err
		}
		return a.withEngine(ctx, cfg, func(e runner) error {
			res, err := e.Lookup(ctx, sandboxmcp.Lookup{Namespace: cfg.Namespace, RequestID: id, Content: true})
			if err != nil {
				return err
			}
			if out != "" {
				dir, err := openOut(out)
				if err != nil {
					return err
				}
				defer dir.close()
				if !a.copyOut(ctx, e, dir, res) {
					a.status = 1
				}
			}
			a.showRecord(res)
			return nil
		})
	})
}

func (a *app) showRecord(res sandboxmcp.Result) {
	if a.document() {
		manifest := map[string]string{}
		for _, f := range res.Artifacts {
			manifest[f.Name] = f.SHA256
		}
		a.printJSON(record{res, manifest})
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
