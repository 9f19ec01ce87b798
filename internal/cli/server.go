package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) serverCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "server",
		Short: "Show and stop servers in the background",
		Long: `Shows and stops the servers that commands have started in the background, for
sessions and for "run --background". Servers of agents end with their agents.`,
		Example: "  sandboxmcp server list",
	}, a.serverListCommand(), a.serverStopCommand())
}

func (a *call) serverListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the servers in the background",
		Long: `Shows the servers of the state directory that commands have started in the
background, with the number of their sessions and of their runs.`,
		Example: `  sandboxmcp server list --json`,
		Args:    takes(),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		all, err := a.BackgroundServers(ctx, cfg)
		if err != nil {
			return err
		}
		return a.answer(a.json, map[string]any{"servers": all}, func() { a.showServers(all) })
	})
}

func (a *call) showServers(all []app.BackgroundServer) {
	rows := [][]string{{"SERVER", "PROCESS", "STARTED", "SESSIONS", "RUNS"}}
	for _, s := range all {
		rows = append(rows, []string{s.ID, strconv.Itoa(s.PID), clock(s.StartedAt), strconv.Itoa(s.Sessions), strconv.Itoa(s.Active)})
	}
	a.table(rows)
}

func (a *call) serverStopCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stop ID",
		Short: "Stop a server in the background",
		Long: `Stops a server in the background, with its runs and its sessions, and waits until
its process has ended. The files and variables of its sessions are lost.`,
		Example: `  sandboxmcp server stop 4711-0a1b2c3d`,
		Args:    takes("ID"),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, args []string) error {
		if err := a.StopServer(ctx, cfg, args[0]); err != nil {
			return err
		}
		return a.answer(a.json, map[string]any{"stopped": args[0]}, func() { a.print("stopped " + app.Clean(args[0]) + "\n") })
	})
}
