package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// accessKind is a kind of access that a person grants: the words of its commands, and how a
// subject of it is written.
type accessKind struct {
	to      app.Access
	group   string // command that the others are below
	arg     string // subject in a usage line, such as DOMAIN
	example string // a subject

	approve  string // first sentence of the help of approve
	request  string // what a question is, such as "a request for a domain"
	revoke   string // help of revoke
	shortEnd string // short help of revoke
	open     string // word for a granted subject
	closed   string // word for a revoked subject

	subject func(text string) (sandboxmcp.Subject, error) // fails if the text cannot be one
	text    func(s sandboxmcp.Subject) string
}

func domainAccess() accessKind {
	return accessKind{
		to: app.AccessToDomains(), group: "egress", arg: "DOMAIN", example: "api.example.com",
		approve: `Opens exactly the domain of the request, as "egress list" shows it. Connections and
requests that wait for it go on.`,
		request: "a request for a domain",
		revoke: `Closes exactly this domain, as "egress list" shows it, to the programs of a
namespace. New connections to it are refused at once, existing ones are cut within
a second.`,
		shortEnd: "Close a domain that was opened", open: "open", closed: "closed",
		subject: func(text string) (sandboxmcp.Subject, error) {
			_, err := sandboxmcp.ParseDomain(text)
			return sandboxmcp.Subject{Domain: text}, err
		},
		text: func(s sandboxmcp.Subject) string { return s.Domain },
	}
}

func commandAccess() accessKind {
	return accessKind{
		to: app.AccessToCommands(), group: "host access", arg: "PATTERN", example: "'git fetch origin'",
		approve:  `Allows exactly the command of the request, as "host access list" shows it.`,
		request:  "a request for a host command",
		revoke:   `Withdraws exactly this command, as "host access list" shows it, from a namespace.`,
		shortEnd: "Withdraw an approved host command", open: "allowed", closed: "withdrawn",
		subject: func(text string) (sandboxmcp.Subject, error) { return sandboxmcp.Subject{Pattern: text}, nil },
		text:    func(s sandboxmcp.Subject) string { return s.Pattern },
	}
}

func packageAccess() accessKind {
	return accessKind{
		to: app.AccessToPackages(), group: "packages", arg: "LANGUAGE:NAME", example: "python:requests",
		approve: `Allows the package of the request, as "packages list" shows it, in all its
versions. It installs nothing.`,
		request: "a request for a package",
		revoke: `Ends what persons have allowed for a package. What is installed stays; remove it
with "packages remove".`,
		shortEnd: "End what was allowed for a package", open: "allowed", closed: "no longer allowed",
		subject: func(text string) (sandboxmcp.Subject, error) { return sandboxmcp.Subject{Package: text}, nil },
		text:    func(s sandboxmcp.Subject) string { return s.Package },
	}
}

// printsJSON ends the help of commands that print JSON unless stdout is a terminal.
const printsJSON = " Off a terminal, and with --json,\nit prints one JSON document."

// accessCommands returns the commands approve, deny and revoke of a kind.
func (a *call) accessCommands(k accessKind) []*cobra.Command {
	return []*cobra.Command{a.approveCommand(k), a.denyCommand(k), a.revokeCommand(k)}
}

func (a *call) approveCommand(k accessKind) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approve ID | " + k.arg,
		Short: "Approve " + k.request,
		Long: k.approve + ` It holds for 24 hours unless a flag says otherwise. In
place of the ID it takes ` + k.arg + `, which is then granted without a request until
"` + k.group + ` revoke".` + printsJSON,
		Example: "  sandboxmcp " + k.group + " approve apr_3x7k\n  sandboxmcp " + k.group + " approve apr_3x7k --once\n  sandboxmcp " + k.group + " approve " + k.example + " --for 1h",
		Args:    takes("ID"),
	}
	cmd = a.grants(cmd, k, func(text string) (sandboxmcp.AccessDecision, error) {
		if strings.HasPrefix(text, "apr_") {
			return sandboxmcp.AccessDecision{ID: text}, nil
		}
		s, err := k.subject(text)
		return sandboxmcp.AccessDecision{Subject: s}, err
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		e, ok := errors.AsType[*sandboxmcp.Error](err)
		if ok && e.Code == sandboxmcp.CodeInvalidArgument && e.Hint != "" && strings.HasPrefix(e.Message, sandboxmcp.Quote(args[0])+" is not") { // the caller may have meant an ID
			return e.WithHint("give the ID of a request, as `sandboxmcp " + k.group + " list` shows it, or " + e.Hint)
		}
		return err
	}
	return cmd
}

// grants adds the flags of a grant, and sets the function that a command runs: it grants what
// read returns for its argument.
func (a *call) grants(cmd *cobra.Command, k accessKind, read func(text string) (sandboxmcp.AccessDecision, error)) *cobra.Command {
	var namespace string
	var how scope
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&namespace, "namespace", "", "grant it to the namespace `NAME`; not with an ID")
	how.flags(f)
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		d, err := read(args[0])
		if err != nil {
			return err
		}
		cfg, err := a.inNamespace(cmd, namespace)
		if err != nil {
			return err
		}
		who := app.Me(cfg)
		if d.ID != "" {
			who = app.Everyone()
		}
		if err := how.decision(&d, f.Changed); err != nil {
			return err
		}
		return a.decide(ctx, cfg, k, who, d)
	})
}

func (a *call) denyCommand(k accessKind) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deny ID",
		Short: "Deny " + k.request,
		Long: "Denies " + k.request + `. The same request is denied again for ten minutes;
after that it can be made anew.` + printsJSON,
		Example: "  sandboxmcp " + k.group + " deny apr_3x7k",
		Args:    takes("ID"),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, args []string) error {
		return a.decide(ctx, cfg, k, app.Everyone(), sandboxmcp.AccessDecision{ID: args[0], Deny: true})
	})
}

// decide carries out the decision of the person at the terminal, and prints it.
func (a *call) decide(ctx context.Context, cfg *config.Config, k accessKind, who sandboxmcp.Caller, d sandboxmcp.AccessDecision) error {
	answer, err := a.Decide(ctx, cfg, k.to, who, d)
	if err != nil {
		return err
	}
	return a.answer(a.document(), answer, func() {
		until := k.open + " until it is revoked: "
		switch {
		case !answer.Approved:
			until = "denied "
		case answer.ExpiresAt != nil:
			until = k.open + " until " + clock(*answer.ExpiresAt) + ": "
		}
		a.print(until + app.Clean(k.text(answer.Subject)) + "\n")
	})
}

func (a *call) revokeCommand(k accessKind) *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:     "revoke " + k.arg,
		Short:   k.shortEnd,
		Long:    k.revoke + printsJSON,
		Example: "  sandboxmcp " + k.group + " revoke " + k.example,
		Args:    takes(k.arg),
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "take it from the namespace `NAME`")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if _, err := k.subject(args[0]); err != nil {
			return err
		}
		cfg, err := a.inNamespace(cmd, namespace)
		if err != nil {
			return err
		}
		done, err := a.Revoke(ctx, cfg, k.to, args[0])
		if err != nil {
			return err
		}
		return a.answer(a.document(), done, func() { a.print(k.closed + ": " + app.Clean(k.text(done.Subject)) + "\n") })
	})
}

// scope holds the flags that say how long a grant holds.
type scope struct {
	once    bool
	always  bool
	session string
	span    time.Duration
}

func (o *scope) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.once, "once", false, "grant it for one run: the first that uses it within 15 minutes")
	f.StringVar(&o.session, "session", "", "grant it for the session `ID`, for at most a day")
	f.DurationVar(&o.span, "for", 0, "grant it for `TIME`, such as 30m or 24h")
	f.BoolVar(&o.always, "always", false, "grant it until it is revoked")
}

// decision copies the flags into a decision. If no flag is given, the gate chooses the
// scope.
func (o *scope) decision(d *sandboxmcp.AccessDecision, given func(string) bool) error {
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

// grantRow is a row of a table of grants: state, subject, namespace, id, end and reason.
func grantRow(g sandboxmcp.AccessGrant, subject, by string) []string {
	until := "revoked"
	if g.ExpiresAt != nil {
		until = clock(*g.ExpiresAt)
	}
	why := by + " by " + g.GrantedBy + ", " + string(g.Scope)
	if g.SessionID != "" {
		why += " " + string(g.SessionID)
	}
	return []string{string(g.Status), subject, string(g.Namespace), g.ID, until, why}
}
