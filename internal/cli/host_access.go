package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) hostAccessCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "access",
		Short: "Show and answer requests for host commands",
		Long: `Shows which host commands are allowed, and answers the requests of models for others.
What a person allows applies to the running servers of the state directory and to
later ones.`,
		Example: `  sandboxmcp host access list
  sandboxmcp host access approve apr_3x7k`,
	}, append(a.accessCommands(commandAccess()), a.hostAccessList(), a.hostAccessRequest())...)
}

func (a *call) hostAccessList() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show rules, approved commands and pending requests",
		Long: `Shows the commands that the settings allow or block, those that persons have approved,
and those that wait for approval. A reason in quotes was written by a model and is
not checked. Off a terminal, and with --json, it prints one JSON document.`,
		Example: `  sandboxmcp host access list`,
		Args:    takes(),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		l, err := a.HostAccess(ctx, cfg, app.Everyone())
		if err != nil {
			return err
		}
		return a.answer(a.document(), l, func() { a.showHostAccess(l) })
	})
}

func (a *call) showHostAccess(l sandboxmcp.HostAccess) {
	rows := [][]string{{"STATE", "COMMAND", "NAMESPACE", "ID", "UNTIL", "WHY"}}
	for _, p := range l.Pending {
		why := "the model asks"
		if p.Reason != "" {
			why = "the model says " + p.Reason
		}
		if p.Warning != "" {
			why += "; beware: " + p.Warning
		}
		rows = append(rows, []string{"waits", p.Pattern, string(p.Namespace), p.ID, clock(p.ExpiresAt), why})
	}
	for _, g := range l.Approved {
		rows = append(rows, grantRow(g, g.Pattern, "approved"))
	}
	for _, c := range l.Allowed {
		rows = append(rows, []string{"allowed", c, "all", "", "", "by the settings"})
	}
	for _, c := range l.Blocked {
		rows = append(rows, []string{"blocked", c, "all", "", "", "by the settings"})
	}
	a.table(rows)
	switch {
	case !l.Enabled:
		a.Say("host access is off: see enable_host_access (SANDBOXMCP_HOST_ACCESS)")
	case l.AutoApprove:
		a.Say("host_auto_approve is on: commands are executed without asking a person")
	}
}

func (a *call) hostAccessRequest() *cobra.Command {
	var ask sandboxmcp.HostAsk
	cmd := &cobra.Command{
		Use:   "request PATTERN",
		Short: "Request a host command, as a model does",
		Long: `Requests a host command, which a person then approves or denies. PATTERN is the whole
command; a word * stands for any one word. Off a terminal, and with --json, it prints
one JSON document.`,
		Example: `  sandboxmcp host access request 'git fetch origin'`,
		Args:    takes("PATTERN"),
	}
	cmd.Flags().StringVar(&ask.Reason, "reason", "", "show `TEXT` to the person who decides")
	cmd.Flags().DurationVar(&ask.Wait, "wait", 0, "wait up to `TIME`, such as 45s, for the answer")
	return a.onEngine(cmd, func(ctx context.Context, e app.Engine, who sandboxmcp.Caller, args []string) error {
		ask.Pattern = args[0]
		got, err := e.RequestHostAccess(ctx, who, ask)
		if err != nil {
			return err
		}
		return a.answer(a.document(), got, func() {
			a.print(string(got.Status) + ": " + app.Clean(got.Pattern) + "\n")
			if got.HowToApprove != "" {
				a.Say(got.HowToApprove)
			}
		})
	})
}
