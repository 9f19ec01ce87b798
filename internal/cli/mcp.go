package cli

import (
	"context"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/enroll"
)

func (a *call) mcpCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "mcp",
		Short: "Enter this program in the configuration of MCP clients",
		Long: `Enters this program as an MCP server in the configuration file of a client, or
takes it out again. Everything else in the file stays.`,
		Example: `  sandboxmcp mcp install --client claude
  sandboxmcp mcp install --client cursor --print`,
	}, a.mcpInstallCommand(), a.mcpUninstallCommand())
}

// enrollment is the flags of the commands of mcp.
type enrollment struct {
	client string
	server string
	file   string
	print  bool
}

func (o *enrollment) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.client, "client", "", "`NAME` of the client: "+strings.Join(enroll.Names(), ", "))
	f.StringVar(&o.server, "name", "sandboxmcp", "`NAME` of the server in the client")
	f.StringVar(&o.file, "file", "", "edit `FILE` (default: the client's file of this user)")
	_ = cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(enroll.Names(), cobra.ShellCompDirectiveNoFileComp))
}

// clientOf returns the client of the flags and its file.
func (a *call) clientOf(o *enrollment) (enroll.Client, string, error) {
	client, known := enroll.Find(o.client)
	switch {
	case o.client == "":
		return client, "", app.Usage("--client is missing; it is one of " + strings.Join(enroll.Names(), ", "))
	case !known:
		return client, "", app.Usage("client " + sandboxmcp.Quote(o.client) + " is not one of " + strings.Join(enroll.Names(), ", "))
	}
	if err := enroll.CheckName(o.server); err != nil || o.file != "" {
		return client, o.file, err
	}
	file, err := client.File(enroll.Place{OS: runtime.GOOS, Home: a.home(), Var: a.Variable})
	return client, file, err
}

// home returns the user's home directory.
func (a *call) home() string {
	if runtime.GOOS == "windows" {
		return a.Variable("USERPROFILE")
	}
	return a.Variable("HOME")
}

// enrolled is the answer of the commands of mcp.
type enrolled struct {
	Client  string         `json:"client"`
	File    string         `json:"file"`
	Name    string         `json:"name"`
	Changed bool           `json:"changed"`
	Server  map[string]any `json:"server,omitempty"`
}

func (a *call) mcpInstallCommand() *cobra.Command {
	o := &enrollment{}
	cmd := &cobra.Command{
		Use:   "install --client NAME",
		Short: "Enter this program as a server in an MCP client",
		Long: `Enters "sandboxmcp serve" in the configuration file of an MCP client, with the
state directory and the file of settings of this command. If the server is
there already, its command and arguments are updated, and its other fields stay.
So do other servers, settings and comments. A file that cannot be parsed is not
changed: the line is shown. Restart the client afterwards.

The clients are claude (Claude Code), claude-desktop, cursor, gemini (Gemini CLI),
codex and vscode. With --file it edits another file of that client's form, such as
.mcp.json or .vscode/mcp.json of a project. With --print it prints the entry and
changes nothing.`,
		Example: `  sandboxmcp mcp install --client claude
  sandboxmcp mcp install --client vscode --file .vscode/mcp.json
  sandboxmcp mcp install --client codex --print`,
		Args: takes(),
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.print, "print", false, "print the entry and change nothing")
	return a.withSettings(a.withJSON(cmd), func(_ context.Context, cfg *config.Config, _ []string) error {
		client, file, err := a.clientOf(o)
		if err != nil {
			return err
		}
		entry := enroll.Entry(a.Launch(cfg))
		done := enrolled{Client: client.Name, File: file, Name: o.server, Server: client.Fields(entry)}
		if o.print {
			text, failed := client.Text(o.server, entry)
			if failed != nil {
				return failed
			}
			return a.answer(a.json, done, func() {
				a.print(string(text))
				a.Say("enter this in " + file)
			})
		}
		if done.Changed, err = client.Install(file, o.server, entry); err != nil {
			return err
		}
		return a.answer(a.json, done, func() {
			if !done.Changed {
				a.print(app.Clean(o.server+" is already in "+file) + "\n")
				return
			}
			a.print(app.Clean("entered "+o.server+" in "+file) + "\n")
			a.Say("restart " + client.Title + " to use it")
		})
	})
}

func (a *call) mcpUninstallCommand() *cobra.Command {
	o := &enrollment{}
	cmd := &cobra.Command{
		Use:   "uninstall --client NAME",
		Short: "Take this program out of an MCP client",
		Long: `Takes the server out of the configuration file of an MCP client. Everything else
in the file stays.`,
		Example: `  sandboxmcp mcp uninstall --client claude`,
		Args:    takes(),
	}
	o.flags(cmd)
	a.withJSON(cmd)
	return a.does(cmd, func(context.Context, []string) error {
		client, file, err := a.clientOf(o)
		if err != nil {
			return err
		}
		done := enrolled{Client: client.Name, File: file, Name: o.server}
		if done.Changed, err = client.Remove(file, o.server); err != nil {
			return err
		}
		return a.answer(a.json, done, func() {
			if done.Changed {
				a.print(app.Clean("removed "+o.server+" from "+file) + "\n")
			} else {
				a.print(app.Clean(o.server+" is not in "+file) + "\n")
			}
		})
	})
}
