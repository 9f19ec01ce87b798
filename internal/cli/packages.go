package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
)

func (a *call) installCommand() *cobra.Command {
	var session, namespace string
	p := app.Place{}
	cmd := &cobra.Command{
		Use:   "install LANGUAGE PACKAGE...",
		Short: "Install packages that programs can import",
		Long: `Installs Python or Node.js packages with their dependencies: into a session of a
running server, or without --session for all later runs of the namespace. The
packages of this machine do not change.

pip or npm chooses the versions in a sandbox that reaches nothing but the package
indexes which this machine's pip and npm are configured for. Only wheels, and npm
packages without their install scripts, are installed. Every file is checked
against the hash that the index names. The settings packages, packages_allow,
packages_deny and packages_min_age_days say what may be installed.`,
		Example: `  sandboxmcp install python requests 'pandas>=2'
  sandboxmcp install node express@^4 --session analysis`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return app.Usage([]string{"LANGUAGE", "PACKAGE"}[len(args)] + " is missing")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&session, "session", "", "install into the session `ID`")
	f.StringVar(&namespace, "namespace", "", "install for the namespace `NAME`")
	withServer(cmd, &p)
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		cfg, err := a.inNamespace(cmd, namespace)
		if err != nil {
			return err
		}
		ask := sandboxmcp.InstallAsk{Language: sandboxmcp.Language(args[0]), Packages: args[1:], SessionID: sandboxmcp.SessionID(session)}
		r, err := a.Install(ctx, cfg, p, ask)
		if err != nil {
			return err
		}
		return a.answer(a.json, r, func() { a.showInstallation(r) })
	})
}

// showInstallation prints what was installed, and what was left out.
func (a *call) showInstallation(r sandboxmcp.Installation) {
	rows := make([][]string, 0, len(r.Installed))
	for _, p := range r.Installed {
		rows = append(rows, []string{p.Name, p.Version, "sha256:" + p.SHA256})
	}
	a.table(rows)
	for _, left := range r.Rejected {
		a.Say("left out: " + left.Name + ": " + left.Reason)
	}
	for line := range strings.Lines(r.Output) {
		a.print(app.Clean(strings.TrimSuffix(line, "\n")) + "\n")
	}
}

func (a *call) packagesCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "packages",
		Short: "Show and remove the packages that later runs see, or answer requests",
		Long: `Shows and removes packages that "install" has installed for all later runs of a
namespace. Those of a session end with it. With the setting packages: ask, approve
and deny answer the requests of models and programs for packages.`,
		Example: "  sandboxmcp packages list",
	}, append(a.accessCommands(packageAccess()), a.packagesListCommand(), a.packagesRemoveCommand())...)
}

func (a *call) packagesListCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Show the packages that later runs see",
		Long:    "Shows the packages that all later runs of a namespace see, the latest first. Each row is\none call of \"install\" with its dependencies. Requests that wait for \"packages approve\",\nand packages that persons have allowed, come after them.",
		Example: `  sandboxmcp packages list --json`,
		Args:    takes(),
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "packages of the namespace `NAME`")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		cfg, err := a.inNamespace(cmd, namespace)
		if err != nil {
			return err
		}
		return a.WithEngine(ctx, cfg, func(e app.Engine) error {
			all, err := e.PackageSets(ctx, app.Me(cfg))
			if err != nil {
				return err
			}
			access, err := e.PackageAccess(ctx, app.Me(cfg))
			if err != nil {
				return err
			}
			doc := map[string]any{"sets": all, "pending": access.Pending, "granted": access.Granted}
			return a.answer(a.json, doc, func() {
				a.showSets(all)
				a.showPackageAccess(access)
			})
		})
	})
}

// showSets prints a row for each set.
func (a *call) showSets(all []sandboxmcp.PackageSet) {
	rows := [][]string{{"ID", "LANGUAGE", "REQUESTED", "PACKAGES", "ADDED"}}
	for _, s := range all {
		names := make([]string, 0, len(s.Packages))
		for _, p := range s.Packages {
			names = append(names, p.Name+" "+p.Version)
		}
		rows = append(rows, []string{s.ID[:min(len(s.ID), 12)], string(s.Language), strings.Join(s.Requested, " "), strings.Join(names, ", "), clock(s.AddedAt)})
	}
	a.table(rows)
}

// showPackageAccess prints requests and grants, if there are any.
func (a *call) showPackageAccess(l sandboxmcp.AccessList) {
	rows := [][]string{{"STATE", "PACKAGE", "NAMESPACE", "ID", "UNTIL", "WHY"}}
	for _, p := range l.Pending {
		rows = append(rows, []string{"waits", p.Package, string(p.Namespace), p.ID, clock(p.ExpiresAt), "the model asks"})
	}
	for _, g := range l.Granted {
		rows = append(rows, grantRow(g, g.Package, "allowed"))
	}
	if len(rows) > 1 {
		a.table(rows)
	}
}

func (a *call) packagesRemoveCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "remove PACKAGE",
		Short: "Remove packages from later runs",
		Long: `Removes the rows of "packages list" that were asked for by the name PACKAGE, or the
one whose id begins with PACKAGE, with their dependencies. Sessions that see them
keep them.`,
		Example: `  sandboxmcp packages remove pandas`,
		Args:    takes("PACKAGE"),
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "packages of the namespace `NAME`")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		cfg, err := a.inNamespace(cmd, namespace)
		if err != nil {
			return err
		}
		return a.WithEngine(ctx, cfg, func(e app.Engine) error {
			gone, err := e.RemovePackages(ctx, app.Me(cfg), args[0])
			if err != nil {
				return err
			}
			return a.answer(a.json, map[string]any{"removed": gone}, func() {
				for _, s := range gone {
					a.print(app.Clean("removed "+strings.Join(s.Requested, " ")) + "\n")
				}
			})
		})
	})
}
