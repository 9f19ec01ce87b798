package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) dbCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "db",
		Short: "Check or migrate the database",
		Long: `Checks or migrates the tables of the database: SQLite in the state directory, or the
PostgreSQL database that the setting database_url names.`,
		Example: "  sandboxmcp db check",
	}, a.dbCheckCommand(), a.dbMigrateCommand())
}

func (a *call) dbCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Show the version of the database's tables",
		Long: `Shows the version of the database's tables, and changes nothing. The exit status is 1
if the tables have to be made or migrated. Off a terminal, and with --json, it prints
one JSON document.`,
		Example: "  sandboxmcp db check",
		Args:    takes(),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		s, err := app.CheckDatabase(ctx, cfg)
		if err != nil {
			return err
		}
		if !s.Current() {
			a.status = 1
		}
		return a.answer(a.document(), s, func() { a.showSchema(s) })
	})
}

func (a *call) dbMigrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make the database's tables, or bring them to this release",
		Long: `Makes the database's tables, or brings them to the version of this release. A server
does the same when it starts; with this command it is done before. An older release
refuses newer tables. Off a terminal, and with --json, it prints one JSON document.`,
		Example: "  sandboxmcp db migrate",
		Args:    takes(),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		before, after, err := app.MigrateDatabase(ctx, cfg)
		if err != nil {
			return err
		}
		return a.answer(a.document(), after, func() {
			a.showSchema(after)
			if before.Version != after.Version {
				a.print(fmt.Sprintf("migrated from version %d\n", before.Version))
			}
		})
	})
}

func (a *call) showSchema(s app.Schema) {
	state := "current"
	switch {
	case s.Version == 0:
		state = "it has no tables yet"
	case !s.Current():
		state = fmt.Sprintf("this release has version %d", s.Newest)
	}
	a.table([][]string{{"DATABASE", s.Database}, {"version", fmt.Sprintf("%d (%s)", s.Version, state)}})
}
