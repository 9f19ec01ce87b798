package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
)

// Garbage collector settings of a server. Requests allocate in short bursts, so a high
// percentage costs little memory and avoids most collections. The memory limit makes the
// collector run often if one huge message has filled the heap.
const (
	serveGCPercent   = 400
	serveMemoryLimit = 256 << 20
)

// Tool sets of a server.
const (
	AllTools  = false
	FiveTools = true // the five tools of mcp-code-sandbox
)

// door holds the parts of a server for agents.
type door struct {
	engine Engine
	cfg    *config.Config
	logger *slog.Logger
	five   bool
}

// Serve runs a server on stdin and stdout, and a control socket for other commands.
func (a *App) Serve(ctx context.Context, cfg *config.Config, five bool) error {
	return a.asServer(ctx, cfg, "mcp", func(e Engine, logger *slog.Logger) error {
		beside, err := api.Listen(ctx, api.Config{StateDir: cfg.StateDir, Service: e, Logger: logger, MaxUpload: cfg.Tools.MaxUploadBytes, AuditInMemory: e.AuditInMemory()})
		if err != nil {
			// The agent can still use this server; only other commands cannot reach it.
			logger.Warn("no control socket: other commands cannot reach this server", "error", err)
		} else {
			defer func() { _ = beside.Close() }()
		}
		logger.Info("serving", "transport", "stdio", "version", Version(), "state", cfg.StateDir)
		return a.speak(ctx, door{engine: e, cfg: cfg, logger: logger, five: five})
	})
}

// speak serves the agent on stdin and stdout until the agent disconnects.
func (a *App) speak(ctx context.Context, d door) error {
	files := a.openFiles(ctx, d)
	defer files.stop()
	tools := server.AllTools
	if d.five {
		tools = server.FiveTools
	}
	s := server.New(server.Config{
		Engine: d.engine, Version: Version(), Logger: d.logger, Identity: sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{d.engine.Namespace()}, Actor: "mcp"},
		Tools: tools, Small: d.cfg.MCPAnswers == "small" && !d.five, OutputChars: d.cfg.MCPOutputChars,
		Five: fiveSettings(d.cfg), Link: files.link, Notes: files.notes, OpenWorld: d.cfg.EgressApprovals || d.cfg.EnableNetwork,
	})
	err := s.ServeStdio(ctx, a.Stdin, a.Stdout)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the client can no longer be reached").
			WithHint("start the client again").WithCause(fmt.Errorf("serve: %w", err))
	}
	return nil
}

// stopLimit is how long a server takes to end after a signal, or after its work,
// before the process exits anyway. The kernel then ends every sandbox.
const stopLimit = 2500 * time.Millisecond

// bound exits the process if a server does not end by itself.
type bound struct {
	mu    sync.Mutex
	timer *time.Timer
	over  bool
	exit  func()
}

// start starts the time limit. Later calls do nothing.
func (b *bound) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer == nil && !b.over {
		b.timer = time.AfterFunc(stopLimit, b.exit)
	}
}

// stop cancels the time limit, because the server has ended by itself.
func (b *bound) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.timer != nil {
		b.timer.Stop()
	}
}

// asServer opens an engine for a server, calls work and closes the engine. If that takes
// longer than stopLimit after the end was requested, the process exits.
func (a *App) asServer(ctx context.Context, cfg *config.Config, actor string, work func(Engine, *slog.Logger) error) error {
	last := &bound{exit: func() {
		time.AfterFunc(stopLimit/20, func() { a.Exit(1) }) // exit even if writing the log blocks
		a.tell(fmt.Sprintf("the server has not ended within %s, so the process exits", stopLimit))
		a.Exit(1)
	}}
	defer last.stop()
	defer context.AfterFunc(ctx, last.start)()
	logger, done, err := a.logger(cfg, talking)
	if err != nil {
		return err
	}
	defer done()
	debug.SetGCPercent(serveGCPercent)
	debug.SetMemoryLimit(serveMemoryLimit)
	o := a.options(cfg, logger, actor)
	o.Warm, o.Server = sandboxmcp.Languages(), true
	e, err := a.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		last.start()
		if failed := e.Close(); failed != nil {
			logger.Error("close engine", "error", failed)
		}
	}()
	idleCtx, stopTrim := context.WithCancel(ctx)
	defer stopTrim()
	go trim(idleCtx, e)
	if idle := cfg.Idle(); len(idle) > 0 {
		logger.Warn("these settings have no effect in this version", "settings", idle)
	}
	a.tellUnread(cfg, logger)
	return work(e, logger)
}
