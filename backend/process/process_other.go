//go:build !linux

package process

import (
	"context"
	"runtime"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Backend is not available on this system: it needs a Linux kernel.
type Backend struct{ interpreters }

// Launcher is of no use on this system.
type Launcher struct{}

// StartLauncher returns nil.
func StartLauncher() *Launcher { return nil }

// Close does nothing.
func (*Launcher) Close() {}

// New returns a backend that refuses to open sandboxes.
func New(cfg Config) *Backend { return &Backend{newInterpreters(cfg)} }

// Name returns "process".
func (*Backend) Name() string { return Name }

// Capabilities reports that the backend is not available.
func (*Backend) Capabilities(context.Context) backend.Capabilities {
	return backend.Capabilities{Reason: elsewhere(runtime.GOOS).Message}
}

// Open fails with isolation_unavailable.
func (*Backend) Open(context.Context, backend.Spec) (backend.Sandbox, error) {
	return nil, elsewhere(runtime.GOOS)
}

// Checks reports that Linux is missing.
func (*Backend) Checks(context.Context) []sandboxmcp.Check {
	return []sandboxmcp.Check{{Name: "kernel", Detail: elsewhere(runtime.GOOS).Message, Fix: elsewhereHint}}
}

// Close does nothing.
func (*Backend) Close(context.Context) error { return nil }
