package gateway

import (
	"context"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
)

// Judging returns a context for what needs no approval, as the web tools. In it a host that a person has
// denied the namespace cannot be connected to.
func (e *Egress) Judging(ctx context.Context, ns sandboxmcp.Namespace) context.Context {
	return egress.WithJudge(ctx, func(ctx context.Context, host string, port int) error { return e.denied(ctx, ns, host, port) })
}

// denied returns egress_denied if a person has denied the namespace a host, and neither the settings nor
// a person opens it. A denial that names no port holds for all of them. An address is never denied:
// persons are asked for names.
func (e *Egress) denied(ctx context.Context, ns sandboxmcp.Namespace, host string, port int) error {
	h, err := sandboxmcp.ParseHost(host)
	if err != nil {
		return nil //nolint:nilerr // an address
	}
	if !e.gate.Denied(ctx, ns, func(d sandboxmcp.Domain) bool { return d.Match(h, port) || d.Port == 0 && d.MatchHost(h) }) {
		return nil
	}
	_, open, err := e.gate.Allows(ctx, gate.Who{Namespace: ns}, func(d sandboxmcp.Domain) bool { return d.Match(h, port) })
	if open || err != nil {
		return err
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeEgressDenied, "a person denied %s", h).
		WithHint("do without it; a person opens it with `" + e.cfg.Invocation.Line("egress "+sandboxmcp.ShellQuote(string(h))) + "`")
}
