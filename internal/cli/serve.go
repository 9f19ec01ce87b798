package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// transport holds the flags that say how a server talks to its agents.
type transport struct {
	name string
	port int
	http app.HTTPOptions

	tools    []string
	readOnly bool
}

// flags adds the flags that every server has.
func (t *transport) flags(f *pflag.FlagSet) {
	f.StringVar(&t.name, "transport", "stdio", "`NAME` of the transport: stdio, http or sse (http and sse open the same server)")
	f.IntVar(&t.port, "port", 0, "`PORT` of HTTP (default: 8080 with http, any free one with stdio)")
}

// moreFlags adds the flags that serve has.
func (t *transport) moreFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&t.tools, "tools", nil, "offer only these tools or groups of tools, a `LIST` such as execution,sessions")
	f.BoolVar(&t.readOnly, "read-only", false, "offer only tools that change nothing (REST keeps its routes)")
	f.StringVar(&t.http.Unix, "unix", "", "with http: serve on a unix socket at `PATH` instead of a port")
	f.BoolVar(&t.http.NoAuth, "no-auth", false, "with http: let every user of this machine run code without a key")
}

// overHTTP reports whether the server talks HTTP.
func (t *transport) overHTTP() bool { return t.name == "http" || t.name == "sse" }

// choose checks the flags and applies the port to the settings.
func (a *call) choose(t transport, given func(string) bool) error {
	switch {
	case t.name != "stdio" && !t.overHTTP():
		return app.Usage("transport " + strconv.Quote(t.name) + " is not known; use stdio, http or sse")
	case given("port") && (t.port < 0 || t.port > 65535):
		return app.Usage("--port must be a number from 0 to 65535")
	case t.http.Unix != "" && given("port"):
		return app.Usage("--unix and --port exclude each other")
	case !t.overHTTP() && (t.http.Unix != "" || t.http.NoAuth):
		return app.Usage("--unix and --no-auth need --transport http")
	}
	a.Flags = map[string]string{}
	if given("port") {
		a.Flags["api_port"] = strconv.Itoa(t.port)
	}
	if given("tools") {
		a.Flags["mcp_tools"] = strings.Join(t.tools, ",")
	}
	if given("read-only") {
		a.Flags["mcp_read_only"] = strconv.FormatBool(t.readOnly)
	}
	return nil
}

// serve runs the server that the flags ask for.
func (a *call) serve(ctx context.Context, cfg *config.Config, t transport) error {
	if t.overHTTP() {
		return a.ServeHTTP(ctx, cfg, t.http)
	}
	return a.Serve(ctx, cfg, t.http.Five)
}

func (a *call) serveCommand() *cobra.Command {
	var t transport
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run an MCP server on stdin and stdout, or over HTTP",
		Long: `Speaks the Model Context Protocol, so that an agent can run code in sandboxes: on
stdin and stdout, or with --transport http at /mcp of a port of this machine. It ends
on SIGTERM, or when its stdin ends, with everything that it started. The log goes to
stderr. In another terminal "session", "files", "queue status", "stats", "inspect",
"limits", "events", "artifacts" and "cancel" work on it.

Over HTTP programs of your user need no key. Other users need the key in http.key of
the state directory, in the header X-API-Key or Authorization: Bearer. The setting
api_keys replaces both, and binds keys to namespaces. Without api_keys the server
listens on this machine only.

The groups of tools are execution, sessions, monitoring, security, web, host and files.

It also serves files of its sessions and runs to those who have the link: over HTTP
on the same port, with stdio on a free port of this machine or on that of --port. The
setting artifact_server turns that off for stdio.

On SIGHUP it reads the file of --config again. Limits, API keys, and the lists and
policies of what is allowed are in force at once; docs/config.md marks them. The log
names settings that need a new start. If the file has a fault, nothing changes.`,
		Example: `  sandboxmcp serve
  sandboxmcp serve --transport http --port 8080
  sandboxmcp serve --config settings.yaml
  sandboxmcp serve --tools execution,sessions
  SANDBOXMCP_API_KEYS=KEY1=team-a,KEY2=team-b sandboxmcp serve --transport http`,
		Annotations: map[string]string{reloads: "yes"},
		Args:        takes(),
	}
	f := cmd.Flags()
	f.SortFlags = false
	t.flags(f)
	t.moreFlags(f)
	a.withConfig(cmd)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		if err := a.choose(t, f.Changed); err != nil {
			return err
		}
		cfg, err := a.Load()
		if err != nil {
			return err
		}
		return a.serve(ctx, cfg, t)
	})
}
