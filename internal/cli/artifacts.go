package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// record is a stored execution as --json shows it: its result and a manifest of its
// files.
type record struct {
	result   sandboxmcp.Result
	manifest map[string]string // name to SHA-256
}

// MarshalJSON encodes the result with manifest as its last field.
func (r record) MarshalJSON() ([]byte, error) {
	text, err := r.result.MarshalJSON()
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(r.manifest)
	return slices.Concat(bytes.TrimSuffix(text, []byte("}")), []byte(`,"manifest":`), manifest, []byte("}")), err
}

func (a *call) artifactsCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "artifacts REQUEST_ID",
		Short: "Show the result and the files of a run",
		Long: `Shows the result of an earlier run: its output, its files and their SHA-256. The
running servers of the state directory are asked first, so a run that has not
ended is shown with status running and the output so far. --out copies the files into a directory, where they
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
	head := "request " + string(res.RequestID) + ": " + string(res.Language) + ", " + string(res.Status)
	if res.Status == sandboxmcp.StatusRunning {
		a.print(head + "\n")
		a.showOutput(res)
		return
	}
	a.print(head + ", exit code " + strconv.Itoa(res.ExitCode) + "\n")
	a.showOutput(res)
	rows := [][]string{{"NAME", "BYTES", "TYPE", "SHA-256"}}
	for _, f := range res.Artifacts {
		rows = append(rows, []string{f.Name, strconv.FormatInt(f.SizeBytes, 10), f.MIMEType, f.SHA256})
	}
	if len(res.Artifacts) == 0 {
		a.print("it left no files\n")
		return
	}
	a.table(rows)
}

// showOutput prints what a program wrote, each stream under its name. The streams of a run
// that has not ended are what came so far.
func (a *call) showOutput(res sandboxmcp.Result) {
	for _, s := range []struct {
		name, text string
		cut        bool
	}{{"stdout", res.Stdout, res.StdoutTruncated}, {"stderr", res.Stderr, res.StderrTruncated}} {
		if s.text == "" {
			continue
		}
		if s.cut {
			s.name += ", cut"
		}
		a.print(a.paint(bold, "── "+s.name) + "\n")
		a.printText(s.text)
	}
	if res.Stdout+res.Stderr != "" && len(res.Artifacts) > 0 {
		a.print(a.paint(bold, "── files") + "\n")
	}
}
