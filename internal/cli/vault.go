package cli

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// maxSecretValue bounds what is read as a secret: one byte and a newline more than
// a secret may have, so that the vault says what is wrong with it.
const maxSecretValue = 64<<10 + 2

func (a *call) vaultCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "vault",
		Short: "Keep secrets for programs",
		Long: `Keeps secrets. A program finds each one of its namespace as an environment
variable; in all that comes out of the program it is masked. No command shows a
value again.

Secrets are encrypted in the state directory, where every server sees them at its
next run; with SANDBOXMCP_VAULT=memory they are in the memory of one running server.`,
		Example: "  sandboxmcp vault add API_KEY",
	}, a.vaultAddCommand(), a.vaultListCommand(), a.vaultDeleteCommand(), a.vaultRotateCommand())
}

// vaultFlags are what the commands of the vault have in common.
type vaultFlags struct {
	namespace string
	place     app.Place
}

func (a *call) withVault(cmd *cobra.Command) *vaultFlags {
	v := &vaultFlags{}
	cmd.Flags().StringVar(&v.namespace, "namespace", "", "in the namespace `NAME`")
	withServer(cmd, &v.place)
	a.withConfig(a.withJSON(cmd))
	return v
}

// vaultSettings are the settings, with the namespace that was asked for.
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
		Short: "Put a secret in",
		Long: `Puts a secret in, in place of one of the same key. KEY is the name of the variable
that programs have it in: letters, digits and _, and no name that steers programs,
such as PATH. The value has 8 bytes to 64 KiB. It is asked for without showing it,
or with - read from stdin, less one newline at its end. As VALUE it stands on the
command line, where other programs of this machine can see it and the shell may
keep it.`,
		Example: `  sandboxmcp vault add API_KEY
  sandboxmcp vault add API_KEY - < key.txt
  sandboxmcp vault add API_KEY - --ttl 8h --namespace team < key.txt`,
		Args: cobra.ArbitraryArgs,
	}
	v := a.withVault(cmd)
	cmd.Flags().StringVar(&ttl, "ttl", "", "it is gone after this `TIME`, such as 30m or 24h")
	return a.does(cmd, func(ctx context.Context, args []string) error {
		switch {
		case len(args) == 0:
			return app.Usage("KEY is missing")
		case len(args) > 2:
			return app.Usage("more than KEY and VALUE was given")
		}
		s := sandboxmcp.SecretSpec{Key: args[0]}
		if ttl != "" {
			var err error
			if s.TTL, err = time.ParseDuration(ttl); err != nil || s.TTL <= 0 {
				return app.Usage("--ttl has to be a time above 0 such as 30m or 24h, not " + sandboxmcp.Quote(ttl))
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

// secretValue is the value that a command line gives, or says where it is.
func (a *call) secretValue(ctx context.Context, args []string) (sandboxmcp.Secret, error) {
	if len(args) == 2 && args[1] != "-" {
		a.Say("the value stood on the command line, where other programs can see it: leave it out, and it is asked for; or give it on stdin with -")
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

// askSecret asks a person, without showing what is typed. Interrupted, it leaves
// the terminal as it was.
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
		Use:     "list",
		Short:   "Show which secrets there are",
		Long:    "Shows the keys of a namespace's secrets, since when they are there and until when.",
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
		Short: "Take a secret out",
		Long: `Takes a secret out. The next program does not get it; one that is running keeps
it, and so do the variables of a session, which goes on masking it.`,
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
		Long: `Makes a new key and encrypts every secret of the state directory for it, those of
all namespaces. Running servers go on. The old key is gone afterwards; who has a
copy of it and of the database as it was can still read what was in there, so
change the secrets themselves, too, if that may be so.`,
		Example: "  sandboxmcp vault rotate",
		Args:    takes(),
	}
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, _ []string) error {
		return a.WithEngine(ctx, cfg, func(e app.Engine) error {
			n, err := e.RotateVault(ctx, app.Me(cfg))
			if err != nil {
				return err
			}
			return a.answer(a.json, map[string]any{"rotated": true, "secrets": n}, func() { a.print("the key was replaced; " + strconv.Itoa(n) + " secrets are sealed for the new one\n") })
		})
	})
}
