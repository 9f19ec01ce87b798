package app

import (
	"context"
	"fmt"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// fileDoor is the HTTP server for files of sessions. The zero value serves nothing.
type fileDoor struct {
	link  server.LinkFunc
	notes []string
	stop  func()
}

// openFiles starts the file server if the settings require it: always for mcp-code-sandbox,
// otherwise if a port is set. If the port is in use, the server continues without links to
// files.
func (a *App) openFiles(ctx context.Context, d door) fileDoor {
	cfg := d.cfg
	port, chosen := cfg.Port()
	if !chosen && !d.five {
		return fileDoor{stop: func() {}}
	}
	host := cfg.APIHost
	if cfg.Source("api_host") == config.FromDefault {
		host = cfg.Tools.HTTPHost
	}
	l, err := server.Listen(ctx, server.ListenConfig{Host: host, Port: port, PortSet: chosen})
	if err != nil {
		why := sandboxmcp.AsError(err).Message
		a.tell(why)
		return fileDoor{notes: []string{why}, stop: func() {}}
	}
	if l.Note != "" {
		a.tell(l.Note)
	}
	links := server.NewLinks(d.engine.Namespace())
	links.Open(l.URL)
	stop := server.ServeFiles(ctx, l, server.Files(server.FilesConfig{Engine: d.engine, Links: links, MaxBytes: cfg.Tools.MaxArtifactReadBytes, Names: []string{host}, Logger: d.logger}), d.logger)
	d.logger.Info("files are handed out", "url", l.URL)
	return fileDoor{link: links.URL, stop: stop}
}

// tell prints a line for the person who started the server, even if the log goes
// elsewhere.
func (a *App) tell(line string) { _, _ = fmt.Fprintln(a.Stderr, "sandboxmcp: "+line) }

// fiveSettings returns the settings of the tools sandbox_*.
func fiveSettings(cfg *config.Config) server.Five {
	t := cfg.Tools
	return server.Five{
		Limits: cfg.ToolLimits(), TTL: time.Duration(t.SessionTTLMinutes * float64(time.Minute)),
		MaxCodeBytes: int(t.MaxCodeBytes), MaxUploadBytes: t.MaxUploadBytes, MaxReadBytes: t.MaxArtifactReadBytes, Stateful: t.Stateful, Network: t.Network == "approved",
	}
}
