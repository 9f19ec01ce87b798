package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// takesWord marks a command that has subcommands and also takes an argument.
const takesWord = "takes a word"

// scope holds the flags that say how long a domain stays open.
type scope struct {
	once    bool
	always  bool
	session string
	span    time.Duration
}

func (o *scope) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.once, "once", false, "open it for one run: the first that uses it within 15 minutes")
	f.StringVar(&o.session, "session", "", "open it for the session `ID`, for at most a day")
	f.DurationVar(&o.span, "for", 0, "open it for `TIME`, such as 30m or 24h")
	f.BoolVar(&o.always, "always", false, "open it until it is revoked")
}

// decision copies the flags into a decision. If no flag is given, the gate chooses the
// scope.
func (o *scope) decision(d *sandboxmcp.EgressDecision, given func(string) bool) error {
	n := 0
	for _, name := range []string{"once", "session", "for", "always"} {
		if given(name) {
			n++
		}
	}
	switch {
	case n > 1:
		return app.Usage("--once, --session, --for and --always exclude each other")
	case o.once:
		d.Scope = sandboxmcp.GrantOnce
	case o.always:
		d.Scope = sandboxmcp.GrantAlways
	case given("session"):
		if _, err := sandboxmcp.ParseSessionID(o.session); err != nil {
			return err
		}
		d.Scope, d.SessionID = sandboxmcp.GrantSession, sandboxmcp.SessionID(o.session)
	case given("for"):
		d.Scope, d.For = sandboxmcp.GrantDuration, o.span
	}
	return nil
}

func (a *call) egressCommand() *cobra.Command {
	var namespace string
	var how scope
	cmd := &cobra.Command{
		Use:   "egress DOMAIN",
		Short: "Open a domain to programs, or answer requests for domains",
		Long: `Opens a domain to the programs of a namespace until "egress revoke". It applies to
the running servers of the state directory and to later ones. A domain is a name,
or *.name for all names below it, either with :port. Without a port it means 80
and 443. The subcommands show and answer requests of programs and models. Off a
terminal, and with --json, it prints one JSON document.`,
		Example: `  sandboxmcp egress api.example.com
  sandboxmcp egress '*.example.com' --for 2h
  sandboxmcp egress list
  sandboxmcp egress approve ID --once`,
		Annotations: map[string]string{takesWord: "DOMAIN"},
		Args:        cobra.ArbitraryArgs,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&namespace, "namespace", "", "open it to the programs of the namespace `NAME`")
	how.flags(f)
	a.withConfig(a.withJSON(cmd))
	a.does(cmd, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return app.Usage("DOMAIN is missing")
		}
		switch {
		case !strings.Contains(args[0], ".") && len(near(cmd, args[0])) > 0: // a misspelt subcommand
			return app.Usage(unknown(cmd, args[0]))
		case len(args) > 1:
			return app.Usage(sandboxmcp.Quote(args[1]) + " is one argument too many")
		}
		if _, err := sandboxmcp.ParseDomain(args[0]); err != nil {
			return err
		}
		cfg, err := a.inNamespace(cmd, namespace)
		if err != nil {
			return err
		}
		d := sandboxmcp.EgressDecision{Domain: args[0]}
		if err := how.decision(&d, f.Changed); err != nil {
			return err
		}
		return a.decide(ctx, cfg, app.Me(cfg), d)
	})
	cmd.AddCommand(a.egressList(), a.egressApprove(), a.egressDeny(), a.egressRevoke())
	return cmd
}

func (a *call) egressList() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show pending approvals and open domains",
		Long: `Shows domains that wait for approval, and domains that are open. A reason in
quotes was written by a model and is not checked. Off a terminal, and with --json,
it prints one JSON document.`,
		Example: `  sandboxmcp egress list`,
		Args:    takes(),
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "show only those of the namespace `NAME` (default: all)")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		cfg, err := a.inNamespace(cmd, namespace)
		if err != nil {
			return err
		}
		who := app.Everyone()
		if cmd.Flags().Changed("namespace") {
			who = app.Me(cfg)
		}
		sum, err := a.Egress(ctx, cfg, who)
		if err != nil {
			return err
		}
		return a.answer(a.document(), sum, func() { a.showEgress(sum) })
	})
}

func (a *call) showEgress(l sandboxmcp.EgressList) {
	rows := [][]string{{"STATE", "DOMAIN", "NAMESPACE", "ID", "UNTIL", "WHY"}}
	for _, p := range l.Pending {
		why := "the model says " + p.Reason
		if p.RequestID != "" {
			why = "a program waits for it"
		}
		rows = append(rows, []string{"waits", p.Domain, string(p.Namespace), p.ID, clock(p.ExpiresAt), why})
	}
	for _, g := range l.Granted {
		until := "revoked"
		if g.ExpiresAt != nil {
			until = clock(*g.ExpiresAt)
		}
		why := "opened by " + g.GrantedBy + ", " + string(g.Scope)
		if g.SessionID != "" {
			why += " " + string(g.SessionID)
		}
		rows = append(rows, []string{"open", g.Domain, string(g.Namespace), g.ID, until, why})
	}
	for _, d := range l.Operator {
		rows = append(rows, []string{"open", d, "all", "", "", "by the settings"})
	}
	a.table(rows)
}

func (a *call) egressApprove() *cobra.Command {
	var how scope
	cmd := &cobra.Command{
		Use:   "approve ID",
		Short: "Approve a request for a domain",
		Long: `Opens exactly the domain of the request, as "egress list" shows it. It stays open
for 24 hours unless a flag says otherwise. Connections and requests that wait for
it go on. Off a terminal, and with --json, it prints one JSON document.`,
		Example: `  sandboxmcp egress approve apr_3x7k
  sandboxmcp egress approve apr_3x7k --once`,
		Args: takes("ID"),
	}
	cmd.Flags().SortFlags = false
	how.flags(cmd.Flags())
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		d := sandboxmcp.EgressDecision{ID: args[0]}
		if err := how.decision(&d, cmd.Flags().Changed); err != nil {
			return err
		}
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		return a.decide(ctx, cfg, app.Everyone(), d)
	})
}

func (a *call) egressDeny() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deny ID",
		Short: "Deny a request for a domain",
		Long: `Denies a request for a domain. The same request is denied again for ten minutes;
after that it can be made anew. Off a terminal, and with --json, it prints one
JSON document.`,
		Example: `  sandboxmcp egress deny apr_3x7k`,
		Args:    takes("ID"),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, args []string) error {
		return a.decide(ctx, cfg, app.Everyone(), sandboxmcp.EgressDecision{ID: args[0], Deny: true})
	})
}

func (a *call) egressRevoke() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "revoke DOMAIN",
		Short: "Close a domain that was opened",
		Long: `Closes exactly this domain, as "egress list" shows it, to the programs of a
namespace. New connections to it are refused at once, existing ones are cut within
a second. Off a terminal, and with --json, it prints one JSON document.`,
		Example: `  sandboxmcp egress revoke api.example.com`,
		Args:    takes("DOMAIN"),
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "close it to the programs of the namespace `NAME`")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if _, err := sandboxmcp.ParseDomain(args[0]); err != nil {
			return err
		}
		cfg, err := a.inNamespace(cmd, namespace)
		if err != nil {
			return err
		}
		done, err := a.Revoke(ctx, cfg, args[0])
		if err != nil {
			return err
		}
		return a.answer(a.document(), done, func() { a.print("closed " + app.Clean(done.Domain) + "\n") })
	})
}

// decide carries out the decision of the person at the terminal, and prints it.
func (a *call) decide(ctx context.Context, cfg *config.Config, who sandboxmcp.Caller, d sandboxmcp.EgressDecision) error {
	answer, err := a.Decide(ctx, cfg, who, d)
	switch {
	case err != nil:
		return err
	case a.document():
		a.printJSON(answer)
	case !answer.Approved:
		a.print("denied " + app.Clean(answer.Domain) + "\n")
	case answer.ExpiresAt != nil:
		a.print("open until " + clock(*answer.ExpiresAt) + ": " + app.Clean(answer.Domain) + "\n")
	default:
		a.print("open until it is revoked: " + app.Clean(answer.Domain) + "\n")
	}
	return nil
}

func domainsOf(list []sandboxmcp.Approval) []string {
	domains := make([]string, 0, len(list))
	for _, p := range list {
		domains = append(domains, p.Domain)
	}
	return domains
}
