package docker

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// Name is the backend's name in settings and results.
const Name = "docker"

// Config configures the backend.
type Config struct {
	Process process.Config // of the sandboxes; Containers is set by New
	Host    string         // the engine's address, such as unix:///var/run/docker.sock; empty: that one
	Certs   string         // directory with ca.pem, cert.pem and key.pem, by which an engine over TCP and its client know each other; empty: no TLS
	Runtime string         // of containers; empty: runc. Others have a kernel of their own, such as runsc and kata-runtime
	Image   string         // image of every container; empty: the first of image.Names that the engine has, or those of image.Usual
	Dir     string         // directory for the doors of containers, of the server alone; made if missing
	Idle    bool           // until the first Open, Capabilities only says whether an engine answers
	Logger  *slog.Logger   // nil: none
}

// Backend runs code in containers. Its methods may be called concurrently.
type Backend struct {
	*process.Backend

	engine *Engine
	found  interpreters
	idle   atomic.Bool
}

// New returns the backend. It does not connect to the engine before it is used.
func New(cfg Config) *Backend {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e := newEngine(cfg)
	cfg.Process.Containers = e
	b := &Backend{Backend: process.New(cfg.Process), engine: e}
	b.idle.Store(cfg.Idle)
	return b
}

// Open returns a sandbox that is a container.
func (b *Backend) Open(ctx context.Context, spec backend.Spec) (backend.Sandbox, error) {
	b.idle.Store(false)
	if _, _, err := b.engine.connect(ctx); err != nil { // a missing engine is reported before missing rights
		return nil, err
	}
	return b.Backend.Open(ctx, spec)
}

// Capabilities builds a trial sandbox, as the process backend does.
func (b *Backend) Capabilities(ctx context.Context) backend.Capabilities {
	if b.idle.Load() {
		return backend.Capabilities{Reason: b.engine.glance(ctx)}
	}
	return b.Backend.Capabilities(ctx)
}

// Name returns "docker".
func (*Backend) Name() string { return Name }

// Compiled returns nothing: the interpreters of an image compile for themselves.
func (*Backend) Compiled(backend.Interpreter, string, []byte) (code []byte, prepare func(context.Context)) {
	return nil, nil
}

// Interpreter returns an interpreter of the image.
func (b *Backend) Interpreter(ctx context.Context, l sandboxmcp.Language) (backend.Interpreter, error) {
	return b.found.interpreter(ctx, b, b.engine, l)
}

// Interpreters lists the interpreters of the image.
func (b *Backend) Interpreters(ctx context.Context) ([]sandboxmcp.Runtime, error) {
	return b.found.in(ctx, b, b.engine)
}

// Close ends every sandbox and the connection to the engine.
func (b *Backend) Close(ctx context.Context) error {
	err := b.Backend.Close(ctx)
	b.engine.close()
	return err
}
