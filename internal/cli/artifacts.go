package cli

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
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
		Short: "Show what a run came to and left",
		Long: `Shows the result of an earlier run, the files that it left and their SHA-256. A
running server of the state directory is asked first, so that one that still runs
in the background is there with the status running; then the state directory is.
--out copies the files into a directory. Off a terminal, and with --json, it is
one JSON document with everything, contents included.`,
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
		q := sandboxmcp.Lookup{RequestID: id, Content: true}
		res, found, served := a.askServers(ctx, cfg, q)
		if found {
			return a.handOut(ctx, nil, out, res)
		}
		return a.withEngine(ctx, cfg, func(e runner) error {
			res, err := e.Lookup(ctx, me(cfg), q)
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

// askServers looks for a request in the running servers, which know of those
// that have not ended. Found is only what is whole: the content of large files
// stands in the state directory. The error is the answer where it is not there
// either: how a background run failed that came to no result.
func (a *app) askServers(ctx context.Context, cfg *config.Config, q sandboxmcp.Lookup) (res sandboxmcp.Result, found bool, err error) {
	peers, err := api.Peers(ctx, cfg.StateDir)
	if err != nil {
		a.say(err.Error())
		err = nil
	}
	for _, p := range peers {
		got, failed := p.Lookup(ctx, me(cfg), q)
		var coded *sandboxmcp.Error
		switch {
		case failed == nil && api.Complete(got):
			return got, true, nil
		case failed == nil, sandboxmcp.CodeOf(failed) == sandboxmcp.CodeRequestNotFound:
		case errors.As(failed, &coded):
			err = failed
		default:
			a.say("server " + p.Peer().ID + ": " + failed.Error())
		}
	}
	return sandboxmcp.Result{}, false, err
}

// handOut copies the files of a result, if that was asked for, and shows it. A
// nil engine will do for a result that has the content of its files.
func (a *app) handOut(ctx context.Context, e runner, out string, res sandboxmcp.Result) error {
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
