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
package gateway

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
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
	Store   *store.Store
	Audit   *audit.Log
	Key     func(purpose string) ([]byte, error) // see [gate.Config]
	Endings *gate.Endings                        // see [gate.Config]
	Events  *event.Bus

	Rules

	Detours  map[sandboxmcp.Domain]netip.AddrPort // for tests; reported by Weak
	Resolver netip.AddrPort                       // for tests; reported by Weak

	Invocation sandboxmcp.Invocation // how persons call this program, for the commands that they are told

	Notices io.Writer        // a bell and a line are written for each new approval; nil: they are logged
	Now     func() time.Time // nil: the machine's clock
	Logger  *slog.Logger     // nil: nothing is logged
}

// Rules are what the settings say about the network. [Egress.SetRules] replaces them.
type Rules struct {
	Network  bool                // open the domains of Operator, and count refused names even if no domain is open
	Backends []string            // Network is for the runs of these backends; nil: of all
	Operator []sandboxmcp.Domain // domains open to every run if Network is set
	NoAsking bool                // persons are never asked and cannot open domains
	Hold     time.Duration       // how long a connection to a closed domain waits for a person's answer; 0: it is refused at once
	Private  []sandboxmcp.Domain // domains that may resolve to a private address
}

// Egress holds what all gateways of a server share: the gate, which decides which domains
// are open, and the proxy, which connects to them. Its methods may be called concurrently.
type Egress struct {
	cfg   Config
	rules atomic.Pointer[Rules]
	gate  *gate.Gate[sandboxmcp.Domain]
	proxy *egress.Proxy

	ctx  context.Context //nolint:containedctx // the life of the server; gateways of sessions outlive their calls
	work sync.WaitGroup
}

// New returns the egress of a server. When ctx ends, gateways stop watching their connections.
func New(ctx context.Context, c Config) *Egress {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	g := gate.Config[sandboxmcp.Domain]{
		Kind: gate.Domains(), Store: c.Store, Audit: c.Audit, Key: c.Key, Endings: c.Endings, Now: c.Now, Notices: c.Notices, Invocation: c.Invocation, Logger: c.Logger,
	}
	if c.Events != nil {
		g.Events = c.Events
	}
	e := &Egress{
		cfg: c, ctx: ctx,
		gate:  gate.New(g),
		proxy: egress.New(egress.Config{Logger: c.Logger, Resolve: c.Detours, DNS: c.Resolver, Now: c.Now}),
	}
	e.SetRules(c.Rules)
	return e
}

// SetRules replaces the rules of the settings. Connections to domains that are no longer open are
// closed within a second, and so are those to hosts that may no longer have a private address.
func (e *Egress) SetRules(r Rules) {
	var operator []sandboxmcp.Domain
	if r.Network {
		operator = r.Operator
	}
	e.gate.SetOperator(operator)
	e.gate.SetApprovals(!r.NoAsking)
	e.proxy.SetPrivate(r.Private)
	e.rules.Store(&r)
}

// opens reports whether the settings open their domains to the runs of a backend.
func (r *Rules) opens(backend string) bool {
	return r.Network && (r.Backends == nil || slices.Contains(r.Backends, backend))
}

// who returns the subject of the gate's decisions for a policy, by the rules as they are now.
func (e *Egress) who(p policy) gate.Who {
	who := p.who
	who.Apart = !e.rules.Load().opens(p.backend)
	return who
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
