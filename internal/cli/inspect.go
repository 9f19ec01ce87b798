package cli

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) inspectCommand() *cobra.Command {
	var namespace string
	p := &app.Place{}
	cmd := &cobra.Command{
		Use:   "inspect [SESSION]",
		Short: "Show the state of a namespace or a session",
		Long: `Shows the sessions, limits, files and secret names of a namespace in the running
servers of the state directory, or those of one session. SESSION "default" means
the namespace itself, unless a session has that id. Without a server there are no
sessions. Off a terminal, and with --json, it prints one JSON document.`,
		Example: `  sandboxmcp inspect
  sandboxmcp inspect analysis`,
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "show the namespace `NAME`")
	withServer(cmd, p)
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if len(args) > 1 {
			return app.Usage(sandboxmcp.Quote(args[1]) + " is one argument too many")
		}
		cfg, err := a.inNamespace(cmd, namespace)
		if err != nil {
			return err
		}
		state, err := a.Inspect(ctx, cfg, *p, args)
		if err != nil {
			return err
		}
		return a.answer(a.document(), state, func() { a.showState(state) })
	})
}

func (a *call) showState(s sandboxmcp.State) {
	rows := [][]string{{"NAMESPACE", string(s.Namespace)}, {"limits", limitText(s.Limits)}}
	for _, have := range s.Sessions {
		rows = append(rows, []string{"session", string(have.ID) + ", " + string(have.Language) + ", " + string(have.Status)})
	}
	for _, f := range s.Files {
		rows = append(rows, []string{"file", f.Path + ", " + counted(f.SizeBytes, "byte")})
	}
	for _, l := range []struct {
		name  string
		words []string
	}{{"secrets", s.VaultKeys}, {"open", s.Egress.Allowed}, {"asked for", domainsOf(s.Egress.Pending)}} {
		if len(l.words) > 0 {
			rows = append(rows, []string{l.name, strings.Join(l.words, ", ")})
		}
	}
	a.table(rows)
}

func (a *call) bridgeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bridge SESSION KEY JSON",
		Short: "Put a value into a session",
		Long: `Puts a JSON value into a session under a key. Programs find it in
/run/bridge/KEY.json and, in Python and Node.js, in the module sandbox. If JSON is
-, the value is read from stdin. Off a terminal, and with --json, it prints one
JSON document.`,
		Example: `  sandboxmcp bridge analysis config '{"year": 2026}'
  sandboxmcp bridge analysis rows - < rows.json`,
		Args: takes("SESSION", "KEY", "JSON"),
	}
	p := &app.Place{}
	withServer(cmd, p)
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, args []string) error {
		var err error
		value := []byte(args[2])
		if args[2] == "-" {
			if value, err = readAll(ctx, a.Stdin, maxValue); err != nil {
				return readFailure("the value on stdin", sandboxmcp.CodeFileTooLarge, err)
			}
		}
		if !json.Valid(value) {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the value is not JSON").WithHint("put text in double quotes: '\"text\"'")
		}
		s, err := a.Owner(ctx, cfg, *p, sandboxmcp.SessionID(args[0]))
		if err != nil {
			return err
		}
		done, err := s.Bridge(ctx, app.Me(cfg), sandboxmcp.Bridge{To: s.Session.ID, Data: map[string]json.RawMessage{args[1]: value}})
		if err != nil {
			return err
		}
		return a.answer(a.document(), done, func() {
			a.print("bridged " + app.Clean(strings.Join(done.Keys, ", ")) + ", " + counted(done.Bytes, "byte") + "\n")
		})
	})
}

// maxValue bounds the bytes of a value.
const maxValue = 8 << 20
