package cli

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *app) inspectCommand() *cobra.Command {
	var namespace string
	p := &place{}
	cmd := &cobra.Command{
		Use:   "inspect [SESSION]",
		Short: "Show what a namespace or a session has",
		Long: `Shows the sessions, limits, files and names of secrets of a namespace in the
running servers of the state directory, or of one session of it. Without a
server there are no sessions. "default", unless a session is called so, is the
namespace itself. Off a terminal, and with --json, it is one JSON document.`,
		Example: `  sandboxmcp inspect
  sandboxmcp inspect analysis`,
		Args: cobra.ArbitraryArgs,
	}
	cmd.Flags().StringVar(&namespace, "namespace", "", "look at the namespace `NAME`")
	p.withServer(cmd)
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if len(args) > 1 {
			return usage(sandboxmcp.Quote(args[1]) + " is one argument too many")
		}
		cfg, err := a.load()
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("namespace") {
			if cfg.Namespace, err = sandboxmcp.ParseNamespace(namespace); err != nil {
				return err
			}
		}
		state, err := a.inspect(ctx, cfg, *p, args)
		if err != nil {
			return err
		}
		if a.document() {
			a.printJSON(state)
			return nil
		}
		a.showState(state)
		return nil
	})
}

func (a *app) inspect(ctx context.Context, cfg *config.Config, p place, args []string) (sandboxmcp.State, error) {
	if len(args) > 0 {
		s, err := a.owner(ctx, cfg, p, sandboxmcp.SessionID(args[0]))
		if err == nil {
			var state sandboxmcp.State
			state, err = s.Inspect(ctx, me(cfg), s.session.ID)
			belongTo(&state, s.Client)
			tidy(&state)
			return state, err
		}
		if args[0] != "default" || sandboxmcp.CodeOf(err) != sandboxmcp.CodeSessionNotFound {
			return sandboxmcp.State{}, err
		}
	}
	sum := sandboxmcp.State{Namespace: cfg.Namespace, Env: map[string]any{}}
	peers, err := a.servers(ctx, cfg, p)
	if err == nil && len(peers) == 0 {
		sum.Limits, err = a.limitsOf(ctx, cfg, cfg.Namespace)
	}
	if err != nil {
		return sum, err
	}
	for _, c := range peers {
		state, failed := c.Inspect(ctx, me(cfg), "")
		if failed != nil {
			a.say("server " + c.Peer().ID + ": " + failed.Error())
			continue
		}
		belongTo(&state, c)
		join(&sum, state)
	}
	if _, missing := os.Stat(cfg.StateDir); len(peers) == 0 && missing == nil && p.server == "" { // what is kept is what holds
		err = a.withEngine(ctx, cfg, func(e runner) error {
			state, failed := e.Inspect(ctx, me(cfg), "")
			sum.Egress, sum.VaultKeys, sum.Env = state.Egress, state.VaultKeys, state.Env
			return failed
		})
		if err != nil {
			return sum, err
		}
	}
	tidy(&sum)
	return sum, ctx.Err()
}

// belongTo names the server as the sessions' owner, as --server takes it.
func belongTo(s *sandboxmcp.State, c *api.Client) {
	for i := range s.Sessions {
		s.Sessions[i].Owner = c.Peer().ID
	}
}

// join adds what a server says of a namespace to what others said.
func join(sum *sandboxmcp.State, s sandboxmcp.State) {
	sum.Limits = s.Limits
	sum.Sessions = append(sum.Sessions, s.Sessions...)
	sum.Files = append(sum.Files, s.Files...)
	sum.VaultKeys = append(sum.VaultKeys, s.VaultKeys...)
	sum.Egress.Allowed = append(sum.Egress.Allowed, s.Egress.Allowed...)
	sum.Egress.Pending = append(sum.Egress.Pending, s.Egress.Pending...)
	maps.Copy(sum.Env, s.Env)
}

// tidy leaves each name once, and no list as null.
func tidy(s *sandboxmcp.State) {
	for _, l := range []*[]string{&s.VaultKeys, &s.Egress.Allowed} {
		slices.Sort(*l)
		*l = append([]string{}, slices.Compact(*l)...)
	}
	s.Egress.Pending = eachApproval(s.Egress.Pending)
	s.Sessions = append([]sandboxmcp.Session{}, s.Sessions...)
	s.Files = append([]sandboxmcp.SessionFile{}, s.Files...)
	if s.Env == nil {
		s.Env = map[string]any{}
	}
}

func (a *app) showState(s sandboxmcp.State) {
	rows := [][]string{{"NAMESPACE", string(s.Namespace)}, {"limits", limitText(s.Limits)}}
	for _, have := range s.Sessions {
		rows = append(rows, []string{"session", string(have.ID) + ", " + string(have.Language) + ", " + string(have.Status)})
	}
	for _, f := range s.Files {
		rows = append(rows, []string{"file", f.Path + ", " + strconv.FormatInt(f.SizeBytes, 10) + " bytes"})
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

func (a *app) bridgeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bridge SESSION KEY JSON",
		Short: "Hand a value to a session",
		Long: `Puts a JSON value into a session under a name. Its programs find it in
/run/bridge/KEY.json, and in Python and Node.js in the module sandbox. The value -
is read from stdin. Off a terminal, and with --json, the answer is one JSON
document.`,
		Example: `  sandboxmcp bridge analysis config '{"year": 2026}'
  sandboxmcp bridge analysis rows - < rows.json`,
		Args: takes("SESSION", "KEY", "JSON"),
	}
	p := &place{}
	p.withServer(cmd)
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		cfg, err := a.load()
		if err != nil {
			return err
		}
		value := []byte(args[2])
		if args[2] == "-" {
			if value, err = readAll(ctx, a.stdin, maxValue); err != nil {
				return readFailure("the value on stdin", sandboxmcp.CodeFileTooLarge, err)
			}
		}
		if !json.Valid(value) {
			return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the value is not JSON").WithHint("text is written in quotes: '\"text\"'")
		}
		s, err := a.owner(ctx, cfg, *p, sandboxmcp.SessionID(args[0]))
		if err != nil {
			return err
		}
		done, err := s.Bridge(ctx, me(cfg), sandboxmcp.Bridge{To: s.session.ID, Data: map[string]json.RawMessage{args[1]: value}})
		if err != nil {
			return err
		}
		if a.document() {
			a.printJSON(done)
			return nil
		}
		a.print("bridged " + clean(strings.Join(done.Keys, ", ")) + ", " + strconv.FormatInt(done.Bytes, 10) + " bytes\n")
		return nil
	})
}

// maxValue bounds the bytes of a value that is handed over.
const maxValue = 8 << 20
