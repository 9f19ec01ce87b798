package server_test

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
)

// SetLimits keeps the requested limits over the defaults.
func (f *fake) SetLimits(_ context.Context, c sandboxmcp.Caller, change sandboxmcp.LimitsChange) (sandboxmcp.LimitsChanged, error) {
	if err := stranger(c); err != nil {
		return sandboxmcp.LimitsChanged{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changes = append(f.changes, change)
	was := f.kept.Over(sandboxmcp.DefaultLimits())
	f.kept = change.Limits.Over(f.kept)
	is, over := f.kept.Over(sandboxmcp.DefaultLimits()).Clamp(sandboxmcp.DefaultCeilings(8))
	return sandboxmcp.LimitsChanged{Previous: was, Current: is, Clamped: over}, nil
}
