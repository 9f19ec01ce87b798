package cli

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// maxSecretValue bounds how much is read as a secret. It is one byte and a newline more
// than the vault allows, so that the vault reports a value that is too long.
const maxSecretValue = 64<<10 + 2

func (a *call) vaultCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "vault",
		Short: "Keep secrets for programs",
		Long: `Stores secrets. Programs see the secrets of their namespace as environment
variables; the values are masked in their output. No command shows a value.

Secrets are encrypted in the state directory, and every server uses them from its
next run on. With SANDBOXMCP_VAULT=memory they are in the memory of one running
server.`,
		Example: "  sandboxmcp vault add API_KEY",
	}, a.vaultAddCommand(), a.vaultListCommand(), a.vaultDeleteCommand(), a.vaultRotateCommand())
}

// vaultFlags are the flags that the vault commands share.
type vaultFlags struct {
	namespace string
	place     app.Place
}

func (a *call) withVault(cmd *cobra.Command) *vaultFlags {
	v := &vaultFlags{}
	cmd.Flags().StringVar(&v.namespace, "namespace", "", "use the namespace `NAME`")
	withServer(cmd, &v.place)
	a.withConfig(a.withJSON(cmd))
	return v
}

// vaultSettings reads the settings and applies --namespace.
func (a *call) vaultSettings(v *vaultFlags) (*config.Config, error) {
	cfg, err := a.Load()
	if err == nil && v.namespace != "" {
		cfg.Namespace, err = sandboxmcp.ParseNamespace(v.namespace)
	}
	return cfg, err
}

func (a *call) vaultAddCommand() *cobra.Command {
	var ttl string
	cmd := &cobra.Command{
		Use:   "add KEY [VALUE | -]",
		Short: "Add a secret",
		Long: `Adds a secret, or replaces the one with the same KEY. Programs see it as the
environment variable KEY: letters, digits and _, but no variable that controls
programs, such as PATH. The value has 8 bytes to 64 KiB. Without VALUE it is asked
for and not echoed; - reads it from stdin without a final newline. A VALUE on the
command line can be seen by other programs of this machine and may be kept by the
shell.`,
		Example: `  sandboxmcp vault add API_KEY
  sandboxmcp vault add API_KEY - < key.txt
  sandboxmcp vault add API_KEY - --ttl 8h --namespace team < key.txt`,
		Args: cobra.ArbitraryArgs,
	}
	v := a.withVault(cmd)
	cmd.Flags().StringVar(&ttl, "ttl", "", "delete it after `TIME`, such as 30m or 24h")
	return a.does(cmd, func(ctx context.Context, args []string) error {
		switch {
		case len(args) == 0:
			return app.Usage("KEY is missing")
		case len(args) > 2:
			return app.Usage("only KEY and VALUE are expected")
		}
		s := sandboxmcp.SecretSpec{Key: args[0]}
		if ttl != "" {
			var err error
			if s.TTL, err = time.ParseDuration(ttl); err != nil || s.TTL <= 0 {
				return app.Usage("--ttl must be a time above 0 such as 30m or 24h, not " + sandboxmcp.Quote(ttl))
			}
		}
		cfg, err := a.vaultSettings(v)
		if err != nil {
			return err
		}
		if s.Value, err = a.secretValue(ctx, args); err != nil {
			return err
		}
		if err := a.AddSecret(ctx, cfg, v.place, s); err != nil {
			return err
		}
		return a.answer(a.json, map[string]any{"added": s.Key, "namespace": cfg.Namespace}, func() { a.print("added " + s.Key + " to the namespace " + string(cfg.Namespace) + "\n") })
	})
}

// secretValue returns the value from the command line, from stdin or from a prompt.
func (a *call) secretValue(ctx context.Context, args []string) (sandboxmcp.Secret, error) {
	if len(args) == 2 && args[1] != "-" {
		a.Say("other programs can see a value on the command line: leave it out to be asked for it, or give it on stdin with -")
		return sandboxmcp.NewSecret(args[1]), nil
	}
	if len(args) == 1 {
		f, ok := a.Stdin.(*os.File)
		if !ok || !term.IsTerminal(int(f.Fd())) {
			return sandboxmcp.Secret{}, app.Usage("VALUE is missing: - reads it from stdin")
		}
		return a.askSecret(ctx, f, args[0])
	}
	data, err := readAll(ctx, a.Stdin, maxSecretValue)
	if err != nil {
		return sandboxmcp.Secret{}, readFailure("the value on stdin", sandboxmcp.CodeInvalidArgument, err)
	}
	return sandboxmcp.NewSecret(strings.TrimSuffix(string(data), "\n")), nil
}

// askSecret asks for a secret without echoing it. If interrupted, it restores the
// terminal.
func (a *call) askSecret(ctx context.Context, f *os.File, key string) (sandboxmcp.Secret, error) {
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return sandboxmcp.Secret{}, readFailure("the terminal", sandboxmcp.CodeInvalidArgument, err)
	}
	_, _ = a.Stderr.Write([]byte("value of " + app.Clean(key) + ": "))
	type typed struct {
		text []byte
		err  error
	}
	done := make(chan typed, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		done <- typed{text, err}
	}()
	select {
	case got := <-done:
		_, _ = a.Stderr.Write([]byte("\n"))
		if got.err != nil {
			return sandboxmcp.Secret{}, readFailure("the value", sandboxmcp.CodeInvalidArgument, got.err)
		}
		return sandboxmcp.NewSecret(string(got.text)), nil
	case <-ctx.Done():
		_ = term.Restore(fd, before)
		_, _ = a.Stderr.Write([]byte("\n"))
		return sandboxmcp.Secret{}, ctx.Err()
	}
}

func (a *call) vaultListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the secrets",
		Long: `Shows the keys of a namespace's secrets, when they were added and when they
expire.`,
		Example: "  sandboxmcp vault list --json",
		Args:    takes(),
	}
	v := a.withVault(cmd)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		cfg, err := a.vaultSettings(v)
		if err != nil {
			return err
		}
		list, err := a.Secrets(ctx, cfg, v.place)
		if err != nil {
			return err
		}
		if a.json {
			a.printJSON(map[string]any{"vault": cfg.Vault, "namespace": cfg.Namespace, "secrets": list})
			return nil
		}
		rows := [][]string{{"KEY", "ADDED", "EXPIRES"}}
		for _, s := range list {
			row := []string{s.Key, "", "never"}
			if !s.CreatedAt.IsZero() {
				row[1] = clock(s.CreatedAt)
			}
			if s.ExpiresAt != nil {
				row[2] = clock(*s.ExpiresAt)
			}
			rows = append(rows, row)
		}
		a.table(rows)
		return nil
	})
}

func (a *call) vaultDeleteCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete KEY",
		Short: "Delete a secret",
		Long: `Deletes a secret. Later programs do not get it. A running program and variables of
a session keep it; the session goes on masking it.`,
		Example: "  sandboxmcp vault delete API_KEY",
		Args:    takes("KEY"),
	}
	v := a.withVault(cmd)
	return a.does(cmd, func(ctx context.Context, args []string) error {
		cfg, err := a.vaultSettings(v)
		if err != nil {
			return err
		}
		if err := a.DeleteSecret(ctx, cfg, v.place, args[0]); err != nil {
			return err
		}
		return a.answer(a.json, map[string]any{"deleted": args[0], "namespace": cfg.Namespace}, func() {
			a.print("deleted " + app.Clean(args[0]) + " from the namespace " + string(cfg.Namespace) + "\n")
		})
	})
}

func (a *call) vaultRotateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Replace the key of the vault",
		Long: `Makes a new key and encrypts all secrets of the state directory with it, in every
namespace. Running servers go on working. The old key is deleted. A copy of the
old key together with an old copy of the database still reveals the old secrets:
if such copies may exist, change the secrets too.`,
		Example: "  sandboxmcp vault rotate",
		Args:    takes(),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		return a.WithEngine(ctx, cfg, func(e app.Engine) error {
			n, err := e.RotateVault(ctx, app.Me(cfg))
			if err != nil {
				return err
			}
			return a.answer(a.json, map[string]any{"rotated": true, "secrets": n}, func() {
				a.print("the key was replaced; encrypted with the new one: " + counted(int64(n), "secret") + "\n")
			})
		})
	})
}
