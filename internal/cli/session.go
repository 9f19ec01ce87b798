package cli

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) sessionCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "session",
		Short: "Create, show and end sessions",
		Long: `Creates, shows and ends sessions: sandboxes that keep files and variables from run
to run.`,
		Example: "  sandboxmcp session list",
	}, a.sessionListCommand(), a.sessionShowCommand(), a.sessionCreateCommand(), a.sessionKillCommand())
}

func (a *call) sessionListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the sessions of the running servers",
		Long: `Shows the sessions of the running servers of the state directory, including those
of agents.`,
		Example: `  sandboxmcp session list --json`,
		Args:    takes(),
	}
	var p app.Place
	withServer(cmd, &p)
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		all, err := a.Sessions(ctx, cfg, p)
		if err != nil {
			return err
		}
		if a.json {
			a.printJSON(map[string]any{"sessions": all})
			return nil
		}
		rows := [][]string{{"SESSION", "LANGUAGE", "STATUS", "LAST USED", "EXPIRES", "SERVER"}}
		for _, s := range all {
			rows = append(rows, []string{string(s.ID), string(s.Language), string(s.Status), clock(s.LastActivity), clock(s.ExpiresAt), s.Owner})
		}
		a.table(rows)
		return nil
	})
}

func (a *call) sessionShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show a session",
		Long:    `Shows a session of a running server: its language, its limits, its walls and when it ends.`,
		Example: `  sandboxmcp session show analysis`,
		Args:    takes("ID"),
	}
	var p app.Place
	withServer(cmd, &p)
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, args []string) error {
		s, err := a.Owner(ctx, cfg, p, sandboxmcp.SessionID(args[0]))
		if err != nil {
			return err
		}
		s.Session.Owner = s.Peer().ID
		a.showSession(s.Session)
		return nil
	})
}

func (a *call) showSession(s sandboxmcp.Session) {
	if a.json {
		a.printJSON(s)
		return
	}
	rows := [][]string{
		{"SESSION", string(s.ID)},
		{"language", string(s.Language)},
		{"status", string(s.Status)},
		{"keeps state", strings.Join(languageNames(s.Interpreters), ", ")},
		{"server", s.Owner},
		{"created", clock(s.CreatedAt)},
		{"last used", clock(s.LastActivity)},
		{"expires", clock(s.ExpiresAt)},
		{"limits", limitText(s.Limits)},
	}
	if s.Isolation != nil {
		rows = append(rows, []string{"walls", string(s.Isolation.Tier) + ": " + wallList(s.Isolation.Walls)})
	}
	a.table(rows)
}

func languageNames(all []sandboxmcp.Language) []string {
	names := []string{}
	for _, l := range all {
		names = append(names, string(l))
	}
	return names
}

// createOptions are the flags of session create.
type createOptions struct {
	runOptions // language, backend and limits
	id         string
	ttl        float64
	place      app.Place
}

func (a *call) sessionCreateCommand() *cobra.Command {
	o := &createOptions{}
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Create a session",
		Long: `Creates a session and prints its id. The session lives in the background server
or, without one, in the only running server. If there is none, or several serve
agents, a background server is started; it ends five minutes after its last
session. A session ends when it was not used for its time to live, by "session
kill", or with its server.

The limits apply to each run in it, as with "run". A limit above its ceiling is
refused.`,
		Example: `  sandboxmcp session create --id analysis --ram 1024
  sandboxmcp run --session analysis -c 'x = 5'
  sandboxmcp run --session analysis -c 'x + 1'`,
		Args: takes(),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.language, "language", "l", "python", "`LANGUAGE` of its programs: python, node or shell")
	f.StringVar(&o.id, "id", "", "`ID` of the session: 1 to 64 characters of A-Z a-z 0-9 _ - (default: a generated one)")
	f.Float64Var(&o.ttl, "ttl", 0, "end it after `MINUTES` without use (default: that of the settings, 30)")
	o.limitFlags(f)
	f.StringVar(&o.backend, "backend", "", "run it with `BACKEND`: process or docker")
	withStart(cmd, &o.place)
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		if err := o.checkLimits(f.Changed); err != nil {
			return err
		}
		if f.Changed("ttl") && (!(o.ttl > 0) || math.IsInf(o.ttl, 0)) {
			return app.Usage("--ttl must be above 0")
		}
		language, err := sandboxmcp.ParseLanguage(o.language)
		if err != nil {
			return err
		}
		if f.Changed("id") {
			if _, err = sandboxmcp.ParseSessionID(o.id); err != nil {
				return err
			}
		}
		return a.createSession(ctx, o, language)
	})
}

func (a *call) createSession(ctx context.Context, o *createOptions, language sandboxmcp.Language) error {
	cfg, err := a.Load()
	if err != nil {
		return err
	}
	spec := sandboxmcp.SessionSpec{
		ID: sandboxmcp.SessionID(o.id), Language: language, Limits: o.limits, Strict: true,
		TTL: time.Duration(min(o.ttl*float64(time.Minute), math.MaxInt64/2)), Backend: o.backend,
	}
	if spec.ID != "" {
		s, err := a.Owner(ctx, cfg, app.Place{}, spec.ID)
		if err == nil {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "session %s exists already in the server %s", sandboxmcp.Quote(o.id), s.Peer().ID).
				WithHint("use it as it is, end it first, or choose another id")
		}
		if code := sandboxmcp.CodeOf(err); code != sandboxmcp.CodeSessionNotFound && code != sandboxmcp.CodeSessionExpired {
			return err
		}
	}
	return a.InHome(ctx, cfg, o.place, func(c *api.Client) error {
		s, err := c.CreateSession(ctx, app.Me(cfg), spec)
		if err != nil {
			return err
		}
		if s.Owner = c.Peer().ID; a.json {
			a.printJSON(s)
			return nil
		}
		a.print(string(s.ID) + "\n")
		return nil
	})
}

func (a *call) sessionKillCommand() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "kill ID | --id ID",
		Short: "End a session",
		Long: `Ends a session of a running server. Its processes, files and variables are lost,
and its id can be used again.`,
		Example: `  sandboxmcp session kill analysis`,
		Args:    cobra.ArbitraryArgs,
	}
	cmd.Flags().StringVar(&id, "id", "", "the session's `ID`")
	var p app.Place
	withServer(cmd, &p)
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if cmd.Flags().Changed("id") {
			args = append([]string{id}, args...)
		}
		if err := takes("ID")(cmd, args); err != nil {
			return err
		}
		return a.killSession(ctx, p, sandboxmcp.SessionID(args[0]))
	})
}

func (a *call) killSession(ctx context.Context, p app.Place, id sandboxmcp.SessionID) error {
	cfg, err := a.Load()
	if err != nil {
		return err
	}
	s, err := a.Owner(ctx, cfg, p, id)
	if sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionExpired {
		// No server has the session, so delete its data in the state directory.
		_ = a.WithEngine(ctx, cfg, func(e app.Engine) error { return e.TerminateSession(ctx, app.Me(cfg), id) })
	}
	if err == nil {
		err = s.TerminateSession(ctx, app.Me(cfg), id)
	}
	if err != nil {
		return err
	}
	return a.answer(a.json, map[string]any{"killed": id, "wiped": true}, func() { a.print("killed " + string(id) + "\n") })
}

func limitText(l sandboxmcp.Limits) string {
	cores := shown(l.MaxCPUCores) + " cores"
	if l.MaxCPUCores == 1 {
		cores = "1 core"
	}
	return shown(l.MaxRAMMB) + " MiB, " + cores + ", " + shown(l.TimeoutSeconds) + " s, " + counted(int64(l.MaxProcesses), "process")
}
