package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) hostCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "host",
		Short: "Execute host commands and use host files by rules",
		Long: `Executes commands of this machine and reads and writes its files, by the rules that
models have: host_allowed_commands, host_blocked_commands, host_roots, and what
persons have approved. It is off unless enable_host_access is set.`,
		Example: `  sandboxmcp host exec 'git status' --cwd ~/project
  sandboxmcp host access list`,
	}, a.hostExecCommand(), a.hostReadCommand(), a.hostWriteCommand(), a.hostListCommand(), a.hostCopyCommand(), a.hostAccessCommand())
}

func (a *call) hostExecCommand() *cobra.Command {
	var seconds float64
	var dir string
	cmd := &cobra.Command{
		Use:   "exec COMMAND",
		Short: "Execute a host command that a rule allows",
		Long: `Executes one command without a shell, if a rule or a person allows it. Pipes, globs,
variables and redirects are refused. The exit status is that of the command, or 124 if
it was stopped. Off a terminal, and with --json, it prints one JSON document.`,
		Example: `  sandboxmcp host exec 'df -h'
  sandboxmcp host exec 'git log -5' --cwd ~/project`,
		Args: takes("COMMAND"),
	}
	cmd.Flags().Float64Var(&seconds, "timeout", 120, "end it after `SECONDS`")
	cmd.Flags().StringVar(&dir, "cwd", "", "execute it in the directory `DIR` (default: the first of host_roots)")
	return a.onEngine(cmd, func(ctx context.Context, e app.Engine, who sandboxmcp.Caller, args []string) error {
		if seconds <= 0 {
			return app.Usage("--timeout must be above 0")
		}
		out, err := e.ExecHost(ctx, who, sandboxmcp.HostCommand{Command: args[0], Timeout: time.Duration(seconds * float64(time.Second)), Dir: dir})
		if sandboxmcp.CodeOf(err) == sandboxmcp.CodeHostAccessDenied {
			// The person at the terminal may allow it; the hint of the engine names a tool for models.
			return sandboxmcp.AsError(err).WithHint("allow it with `sandboxmcp host access approve " + sandboxmcp.ShellQuote(args[0]) + "`")
		}
		if err != nil {
			return err
		}
		if a.status = out.ExitCode; a.status < 0 {
			a.status = exitTimedOut
		}
		if a.document() {
			a.printJSON(out)
			return nil
		}
		a.printText(out.Stdout)
		if out.Stderr != "" {
			a.Say(strings.TrimRight(out.Stderr, "\n"))
		}
		if out.Warning != "" {
			a.Say(out.Warning)
		}
		return nil
	})
}

func (a *call) hostReadCommand() *cobra.Command {
	var r sandboxmcp.HostRead
	cmd := &cobra.Command{
		Use:     "read PATH",
		Short:   "Print a file below host_roots",
		Long:    `Prints a file below the directories of host_roots. What is no text is printed as base64.`,
		Example: `  sandboxmcp host read /srv/data/notes.txt`,
		Args:    takes("PATH"),
	}
	cmd.Flags().IntVar(&r.MaxBytes, "max-bytes", 0, "print at most `N` bytes (default 50000)")
	cmd.Flags().Int64Var(&r.Offset, "offset", 0, "leave out the first `N` bytes")
	return a.onEngine(cmd, func(ctx context.Context, e app.Engine, who sandboxmcp.Caller, args []string) error {
		r.Path = args[0]
		out, err := e.ReadHostFile(ctx, who, r)
		if err != nil {
			return err
		}
		return a.answer(a.json, out, func() {
			a.printText(out.Content)
			if out.Truncated {
				a.Say("the file goes on: see --offset and --max-bytes")
			}
		})
	})
}

func (a *call) hostWriteCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:     "write PATH TEXT",
		Short:   "Write a text into a file below host_roots",
		Long:    `Writes a text into a file below the directories of host_roots and replaces what it had. Off a terminal, and with --json, it prints one JSON document.`,
		Example: `  sandboxmcp host write /srv/data/notes.txt 'to do'`,
		Args:    takes("PATH", "TEXT"),
	}
	cmd.Flags().BoolVar(&keep, "no-overwrite", false, "fail if the file is there")
	return a.onEngine(cmd, func(ctx context.Context, e app.Engine, who sandboxmcp.Caller, args []string) error {
		out, err := e.WriteHostFile(ctx, who, sandboxmcp.HostWrite{Path: args[0], Content: args[1], Overwrite: !keep})
		if err != nil {
			return err
		}
		return a.answer(a.document(), out, func() { a.print(app.Clean(out.Path) + "\n") })
	})
}

func (a *call) hostListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list DIR",
		Short:   "List a directory below host_roots",
		Long:    `Lists a directory below the directories of host_roots: type, size, time and name.`,
		Example: `  sandboxmcp host list /srv/data`,
		Args:    takes("DIR"),
	}
	return a.onEngine(cmd, func(ctx context.Context, e app.Engine, who sandboxmcp.Caller, args []string) error {
		out, err := e.ListHostFiles(ctx, who, args[0])
		if err != nil {
			return err
		}
		return a.answer(a.json, out, func() { a.printText(out.Listing) })
	})
}

func (a *call) hostCopyCommand() *cobra.Command {
	var session string
	p := &app.Place{}
	cmd := &cobra.Command{
		Use:   "copy SOURCE [DESTINATION]",
		Short: "Copy a host file into a session or the workspace",
		Long: `Copies a file below host_roots into /mnt/data of a session or, without --session, into
the directory workspace_path. DESTINATION is its name there. Off a terminal, and with
--json, it prints one JSON document.`,
		Example: `  sandboxmcp host copy /srv/data/sales.csv --session analysis`,
		Args:    cobra.RangeArgs(1, 2),
	}
	cmd.Flags().StringVar(&session, "session", "", "copy it into the session `ID`")
	withServer(cmd, p)
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, args []string) error {
		cp := sandboxmcp.HostCopy{Source: args[0], SessionID: sandboxmcp.SessionID(session)}
		if len(args) == 2 {
			cp.Destination = args[1]
		}
		var out sandboxmcp.HostCopied
		work := func(s sandboxmcp.Service) (err error) {
			out, err = s.CopyHostFile(ctx, app.Me(cfg), cp)
			return err
		}
		var err error
		if session == "" {
			err = a.WithEngine(ctx, cfg, func(e app.Engine) error { return work(e) })
		} else {
			var owner app.Found
			if owner, err = a.Owner(ctx, cfg, *p, cp.SessionID); err == nil {
				err = work(owner)
			}
		}
		if err != nil {
			return err
		}
		return a.answer(a.document(), out, func() { a.print(app.Clean(out.Path) + "\n") })
	})
}
