package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

// takesWord marks a command that has subcommands and also takes an argument.
const takesWord = "takes a word"

func (a *call) egressCommand() *cobra.Command {
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
	k := domainAccess()
	a.grants(cmd, k, func(text string) (sandboxmcp.AccessDecision, error) {
		words := cmd.Flags().Args()
		switch {
		case !strings.Contains(text, ".") && len(near(cmd, text)) > 0: // a misspelt subcommand
			return sandboxmcp.AccessDecision{}, app.Usage(unknown(cmd, text))
		case len(words) > 1:
			return sandboxmcp.AccessDecision{}, app.Usage(sandboxmcp.Quote(words[1]) + " is one argument too many")
		}
		s, err := k.subject(text)
		return sandboxmcp.AccessDecision{Subject: s}, err
	})
	cmd.AddCommand(append(a.accessCommands(k), a.egressList())...)
	return cmd
}

func (a *call) egressList() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show pending approvals and open domains",
		Long: `Shows domains that wait for approval, domains that are open, and domains that were
open for one run and are used. A reason in quotes was written by a model and is not
checked. Off a terminal, and with --json,
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

func (a *call) showEgress(l sandboxmcp.AccessList) {
	rows := [][]string{{"STATE", "DOMAIN", "NAMESPACE", "ID", "UNTIL", "WHY"}}
	for _, p := range l.Pending {
		why := "the model asks"
		switch {
		case p.RequestID != "":
			why = "a program waits for it"
		case p.Reason != "":
			why = "the model says " + p.Reason
		}
		rows = append(rows, []string{"waits", p.Domain, string(p.Namespace), p.ID, clock(p.ExpiresAt), why})
	}
	for _, g := range l.Granted {
		rows = append(rows, grantRow(g, g.Domain, "opened"))
	}
	for _, d := range l.Operator {
		rows = append(rows, []string{"open", d, "all", "", "", "by the settings"})
	}
	a.table(rows)
}

func domainsOf(list []sandboxmcp.Approval) []string {
	domains := make([]string, 0, len(list))
	for _, p := range list {
		domains = append(domains, p.Domain)
	}
	return domains
}
