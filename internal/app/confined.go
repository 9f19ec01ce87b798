package app

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// confined is the engine of callers over MCP and HTTP if the operator has chosen containers or pods. Such a
// caller cannot choose another backend: its code would run on the server's own machine and kernel.
type confined struct {
	Engine

	to string // the only backend that a request may name
}

// forCallers returns the engine as callers over MCP and HTTP use it. Commands on the control socket belong
// to the operator and are not confined.
func (d front) forCallers() Engine {
	if to := d.cfg.ConfinesTo(); to != "" {
		return confined{d.engine, to}
	}
	return d.engine
}

func (c confined) check(name string) error {
	if name == "" || name == c.to {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeAccessDenied, "the operator has chosen the backend %s, and callers choose no other", c.to).
		WithHint("leave backend out")
}

// Execute implements [sandboxmcp.Runs].
func (c confined) Execute(ctx context.Context, who sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	if err := c.check(req.Backend); err != nil {
		return sandboxmcp.Result{}, err
	}
	return c.Engine.Execute(ctx, who, req)
}

// Start implements [sandboxmcp.Runs].
func (c confined) Start(ctx context.Context, who sandboxmcp.Caller, req sandboxmcp.Request) (sandboxmcp.Result, error) {
	if err := c.check(req.Backend); err != nil {
		return sandboxmcp.Result{}, err
	}
	return c.Engine.Start(ctx, who, req)
}

// CreateSession implements [sandboxmcp.Sessions].
func (c confined) CreateSession(ctx context.Context, who sandboxmcp.Caller, spec sandboxmcp.SessionSpec) (sandboxmcp.Session, error) {
	if err := c.check(spec.Backend); err != nil {
		return sandboxmcp.Session{}, err
	}
	return c.Engine.CreateSession(ctx, who, spec)
}
