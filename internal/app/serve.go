package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
	"github.com/sandboxmcp/sandboxmcp/internal/server"
	"github.com/sandboxmcp/sandboxmcp/internal/tuning"
)

// front holds the parts of a server for agents.
type front struct {
	engine Engine
	cfg    *config.Config // as at the start
	now    *current       // as they are now
	alike  func() string  // see api.Config
	logger *slog.Logger
	five   bool
}

// Serve runs a server on stdin and stdout, and a control socket for other commands.
func (a *App) Serve(ctx context.Context, cfg *config.Config, five bool) error {
	return a.asServer(ctx, cfg, "mcp", func(d front) error {
		defer controls(ctx, d)()
		d.logger.Info("serving", "transport", "stdio", "version", Version(), "state", cfg.StateDir)
		d.five = five
		return a.speak(ctx, d)
	})
}

// controls opens the control socket for other commands. The caller calls the function to
// close it.
func controls(ctx context.Context, d front) func() {
	beside, err := api.Listen(ctx, d.socket())
	if err != nil {
		// The agent can still use this server; only other commands cannot reach it.
		d.logger.Warn("no control socket: other commands cannot reach this server", "error", err)
		return func() {}
	}
	return func() { _ = beside.Close() }
}

// socket returns the configuration of the control socket.
func (d front) socket() api.Config {
	return api.Config{
		StateDir: d.cfg.StateDir, Service: d.engine, Logger: d.logger, AuditInMemory: d.engine.AuditInMemory(), Alike: d.alike,
		MaxUpload: func() int64 { return d.now.config().Tools.MaxUploadBytes },
	}
}

// speak serves the agent on stdin and stdout until the agent disconnects.
func (a *App) speak(ctx context.Context, d front) error {
	files := a.openFiles(ctx, d)
	defer files.close()
	c := a.serverConfig(ctx, d, files)
	c.Identity = sandboxmcp.Identity{Namespaces: []sandboxmcp.Namespace{d.engine.Namespace()}, Actor: "mcp"}
	s := server.New(c)
	defer d.now.follow(func(cfg *config.Config) {
		s.SetRules(rules(ctx, d, cfg))
		files.links.SetMost(linkedBytes(cfg))
	})()
	err := s.ServeStdio(ctx, a.Stdin, a.Stdout)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		return sandboxmcp.Errorf(sandboxmcp.CodeExecutionFailed, "the client can no longer be reached").
			WithHint("start the client again").WithCause(fmt.Errorf("serve: %w", err))
	}
	return nil
}

// serverConfig returns the configuration of an MCP server, without what is known of its
// clients.
func (a *App) serverConfig(ctx context.Context, d front, files *fileDoor) server.Config {
	tools := server.AllTools
	if d.five {
		tools = server.FiveTools
	}
	return server.Config{
		Engine: d.forCallers(), Version: Version(), Logger: d.logger,
		Tools: tools, Only: d.cfg.MCPTools, ReadOnly: d.cfg.MCPReadOnly, Small: d.cfg.MCPAnswers == "small" && !d.five,
		Rules: rules(ctx, d, d.cfg), Link: files.linker(), Notes: files.notes, Invocation: a.invocation(a.loaded),
	}
}

// rules returns what the settings say to an MCP server, and may change while it runs.
func rules(ctx context.Context, d front, cfg *config.Config) server.Rules {
	return server.Rules{
		OutputChars: cfg.MCPOutputChars, Five: fiveSettings(cfg), Told: told(ctx, d, cfg), OpenWorld: cfg.EgressApprovals || cfg.OpensNetwork(),
	}
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
func (a *App) asServer(ctx context.Context, cfg *config.Config, actor string, work func(front) error) error {
	self := observeSelf() // before this process changes its limits
	if err := server.CheckTools(cfg.MCPTools); err != nil {
		return err
	}
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
	if cfg.EnableHostAccess && cfg.HostAutoApprove {
		a.tell("warning: host_auto_approve is on, so host commands are executed without asking a person")
	}
	a.tellOpenSettings()
	a.byPath = true // readers of the server's texts may have another PATH
	tuning.Server()
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
	now := &current{now: cfg}
	go a.reload(idleCtx, e, now, logger)
	a.tellUnread(cfg, logger)
	d := front{engine: e, cfg: cfg, now: now, logger: logger, alike: digestOf(self, a.Env, now.settled)}
	joined, leave, err := a.joinReplicas(ctx, d)
	if err != nil {
		return err
	}
	defer leave()
	d.engine = joined
	return work(d)
}
