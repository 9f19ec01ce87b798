package cli

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) queueCommand() *cobra.Command {
	status := &cobra.Command{
		Use:   "status",
		Short: "Show how busy the running servers are",
		Long: `Shows how many requests run and wait in all running servers of the state directory
together, and how many have ended. Without a server nothing runs or waits, and the
count is that of the state directory. Off a terminal, and with --json, it prints
one JSON document.`,
		Example: `  sandboxmcp queue status`,
		Args:    takes(),
	}
	a.withConfig(a.withJSON(status))
	a.does(status, func(ctx context.Context, _ []string) error {
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		s, err := a.Stats(ctx, cfg)
		if err != nil {
			return err
		}
		return a.answer(a.document(), s.Queue, func() { a.table(append([][]string{{"QUEUE", ""}}, queueRows(s)...)) })
	})
	return a.group(&cobra.Command{
		Use:     "queue",
		Short:   "Show the queue",
		Long:    `Shows the queue of the running servers.`,
		Example: "  sandboxmcp queue status",
	}, status)
}

func (a *call) statsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show executions, latency and resources of the running servers",
		Long: `Shows what the running servers of the state directory have counted since their
start, all together: queue, executions by status, latency, their memory and CPU
time, and whether they sign the audit record. With several servers, the slowest
latency is shown. Without a server it counts the executions stored in the state
directory, and the rest is zero. Off a
terminal, and with --json, it prints one JSON document.`,
		Example: `  sandboxmcp stats --json`,
		Args:    takes(),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		s, err := a.Stats(ctx, cfg)
		if err != nil {
			return err
		}
		if a.document() {
			a.printJSON(s)
			return nil
		}
		rows := append([][]string{{"STATS", ""}, {"servers", strconv.Itoa(s.Servers)}, {"sessions", strconv.Itoa(s.Sessions)}}, queueRows(s)...)
		for _, st := range sandboxmcp.Statuses() {
			rows = append(rows, []string{string(st), strconv.FormatInt(s.Executions[st], 10)})
		}
		for _, kind := range slices.Sorted(maps.Keys(s.Pool)) {
			rows = append(rows, []string{"pool " + kind, shown(s.Pool[kind])})
		}
		a.table(append(rows,
			[]string{"latency p50", decimal(s.LatencyMS.P50) + " ms"},
			[]string{"latency p99", decimal(s.LatencyMS.P99) + " ms"},
			[]string{"memory", decimal(s.Resources.RAMMB) + " MiB"},
			[]string{"cpu", decimal(s.Resources.CPUSeconds) + " s"},
			[]string{"audit record", signing(s.Record)},
		))
		return nil
	})
}

func queueRows(s app.Stats) [][]string {
	q := s.Queue
	return [][]string{
		{"active", strconv.Itoa(q.Active) + " of " + strconv.Itoa(q.MaxConcurrent)},
		{"queued", strconv.Itoa(q.Queued)},
		{"processed", strconv.FormatInt(q.TotalProcessed, 10)},
	}
}

// signing says in words whether the record is signed.
func signing(s *sandboxmcp.AuditSigning) string {
	switch {
	case s == nil:
		return "no server runs"
	case s.Signed:
		return "signed"
	case s.Since == nil:
		return "not signed: " + s.Reason
	}
	return "not signed since " + s.Since.Format(time.RFC3339) + ": " + s.Reason
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

func (a *call) cancelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel REQUEST_ID",
		Short: "Cancel a run of a running server",
		Long: `Cancels a request that is running or waiting in a running server of the state
directory, in the foreground or background. Its result has the status cancelled.`,
		Example: `  sandboxmcp cancel 0f8c9f0e-6d0b-4f0e-9d3b-1a2b3c4d5e6f`,
		Args:    takes("REQUEST_ID"),
	}
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
		peers, err := a.Servers(ctx, cfg, app.Place{})
		if err != nil {
			return err
		}
		for _, p := range peers {
			err := p.Cancel(ctx, app.Me(cfg), id)
			switch sandboxmcp.CodeOf(err) {
			case "":
				if a.json {
					a.printJSON(map[string]any{"request_id": id, "cancelled": true})
				} else {
					a.print("cancelled " + string(id) + "\n")
				}
				return nil
			case sandboxmcp.CodeRequestNotFound:
			default:
				a.Say("server " + p.Peer().ID + ": " + err.Error())
			}
		}
		return sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no running server has a request %s that has not ended", sandboxmcp.Quote(string(id))).
			WithHint("use the request_id of a run that has not ended")
	})
}
