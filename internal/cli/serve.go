package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/control"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// A server makes its garbage in bursts of small calls. A wide target of the
// collector costs some memory and saves most of its work; the limit keeps a
// single huge message from turning that into a habit.
const (
	serveGCPercent   = 400
	serveMemoryLimit = 256 << 20
)

func (a *app) serveCommand() *cobra.Command {
	var transport string
	var port int
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Be an MCP server",
		Long: `Speaks the Model Context Protocol on stdin and stdout, so that an agent can run
code in sandboxes. It ends when its stdin ends or on SIGTERM, and everything
that it started ends with it. The log goes to stderr. "queue status", "stats",
"artifacts" and "cancel" in another terminal reach it.`,
		Example: `  sandboxmcp serve
  sandboxmcp serve --config settings.yaml`,
		Args: takes(),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&transport, "transport", "stdio", "`NAME` of the transport: only stdio is built")
	f.IntVar(&port, "port", 0, "port of HTTP, which is not built")
	_ = f.MarkHidden("port") // it is there: understood, and refused with a reason
	a.withConfig(cmd)
	return a.does(cmd, func(ctx context.Context, _ []string) error {
		switch {
		case transport == "http" || transport == "sse":
			return usage("transport " + transport + " is not in this version; use stdio")
		case transport != "stdio":
			return usage("transport " + strconv.Quote(transport) + " is not known; use stdio")
		case f.Changed("port"):
			return usage("--port needs HTTP, which is not in this version")
		}
		return a.serve(ctx)
	})
}

func (a *app) serve(ctx context.Context) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	logger, done, err := a.logger(cfg, talking)
	if err != nil {
		return err
	}
	defer done()
	debug.SetGCPercent(serveGCPercent)
	debug.SetMemoryLimit(serveMemoryLimit)
	o := a.options(cfg, logger, "mcp")
	o.Warm, o.Server = sandboxmcp.Languages(), true
	e, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		if failed := e.Close(); failed != nil {
			logger.Error("close engine", "error", failed)
		}
	}()
	door, err := control.Listen(ctx, cfg.StateDir, e, logger)
	if err != nil {
		// The agent is not hurt by this; the person in another terminal is told.
		logger.Warn("no control socket: other commands do not see this server", "error", err)
	} else {
		defer func() { _ = door.Close() }()
	}
	idleCtx, stopTrim := context.WithCancel(ctx)
	defer stopTrim()
	go trim(idleCtx, e.Stats)
	if idle := cfg.Idle(); len(idle) > 0 {
		logger.Warn("these settings have no effect in this version", "settings", idle)
	}
	logger.Info("serving", "transport", "stdio", "version", version(), "state", cfg.StateDir)
	files := a.openFiles(ctx, cfg, e, e.Namespace(), logger, false)
	defer files.stop()
	s := server.New(server.Config{
		Engine: e, Version: version(), Logger: logger, Namespace: e.Namespace(), Five: fiveSettings(cfg), Link: files.link, Notes: files.notes,
	})
	err = s.ServeStdio(ctx, a.stdin, a.stdout)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the client can no longer be reached").
			WithHint("start the client again").WithCause(fmt.Errorf("serve: %w", err))
	}
	return nil
}
