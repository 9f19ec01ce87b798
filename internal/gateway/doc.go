// Package gateway is the network of sandboxes. It holds the policy that says which hosts a run may
// reach. It gives a sandbox its [Gateway] and judges each connection. It asks persons to open domains,
// and reports what was refused.
//
// A [Run] is made before its sandbox. If the run needs a gateway, Connect gives the sandbox one.
// LetOut activates the run's policy, Report returns what the run did, and End deactivates the
// policy. A gateway without an active policy allows no connections.
//
// The gate is asked again at each connection, because domains may be opened and closed during a
// run. A name that contains a secret is always refused, because DNS servers and the person who is
// asked would read it.
// person who is asked, would read it.
package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Config configures an [Egress].
type Config struct {
	Store  *store.Store
	Audit  *audit.Log
	Events *event.Bus

	Network  bool                // open the domains of Operator, and count refused names even if no domain is open
	Operator []sandboxmcp.Domain // domains open to every run if Network is set
	NoAsking bool                // persons are never asked and cannot open domains
	Hold     time.Duration       // how long a connection to a closed domain waits for a person's answer; 0: it is refused at once
	Private  []sandboxmcp.Domain // domains that may resolve to a private address

	Detours  map[sandboxmcp.Domain]netip.AddrPort // for tests; reported by Weak
	Resolver netip.AddrPort                       // for tests; reported by Weak

	Notices io.Writer        // a bell and a line are written for each new approval; nil: they are logged
	Now     func() time.Time // nil: the machine's clock
	Logger  *slog.Logger     // nil: nothing is logged
}

// Egress holds what all gateways of a server share: the gate, which decides which domains
// are open, and the proxy, which connects to them. Its methods may be called concurrently.
type Egress struct {
	cfg   Config
	gate  *gate.Gate
	proxy *egress.Proxy

	ctx  context.Context //nolint:containedctx // the life of the server; gateways of sessions outlive their calls
	work sync.WaitGroup
}

// New returns the egress of a server. When ctx ends, gateways stop watching their connections.
func New(ctx context.Context, c Config) *Egress {
	var operator []sandboxmcp.Domain
	if c.Network {
		operator = c.Operator
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Egress{
		cfg: c, ctx: ctx,
		gate:  gate.New(gate.Config{Store: c.Store, Audit: c.Audit, Operator: operator, Approvals: !c.NoAsking, Now: c.Now, Notices: c.Notices, Logger: c.Logger}),
		proxy: egress.New(egress.Config{Logger: c.Logger, Private: c.Private, Resolve: c.Detours, DNS: c.Resolver, Now: c.Now}),
	}
}

// Wait waits for the goroutines of gateways. The caller must have ended the context of New and all
// runs. Gateways of sessions may still be open.
func (e *Egress) Wait() { e.work.Wait() }

// Weak describes the active settings that exist for tests. A run's isolation report lists them as
// weaknesses.
func (e *Egress) Weak() []string { return e.proxy.Weak() }

// Secrets finds secrets in names.
type Secrets interface {
	// Masks returns the masker of the secrets as they are now. It may be nil.
	Masks(ctx context.Context) (*redact.Masker, error)
}
