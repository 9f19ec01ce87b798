package gateway

import (
	"context"
	"strconv"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

// Run is the network of one run: its policy and the gateway of its sandbox. Its methods
// may not be called concurrently.
type Run struct {
	e       *Egress
	backend string
	policy  policy
	gateway *Gateway            // nil: none
	note    string              // what of the network is not available; see Note
	out     bool                // LetOut has activated the policy in gateway
	opened  []Opened            // see Opened
	network *sandboxmcp.Network // what the run did on the network; nil: not reported yet
}

// Connect gives a sandbox a gateway, unless it has one from earlier runs: have. If the run may reach
// a host, Connect opens the sandbox's network. Otherwise nothing is opened before a program makes a
// network socket. The run's policy applies only after LetOut. changed is called, also later and
// concurrently, after the walls of the sandbox have changed. Connect fails only if the request
// names domains or ctx has ended.
func (r *Run) Connect(ctx context.Context, sb backend.Sandbox, have *Gateway, changed func()) error {
	r.gateway = have
	wanted := r.policy.wanted || have != nil && have.leadsOut()
	if have == nil {
		net, ok := sb.(backend.Networker)
		if !ok {
			if !wanted || r.policy.offline {
				return nil
			}
			return r.without(ctx, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the backend %s has no network", r.backend).WithHint("use the process backend"))
		}
		r.gateway = r.e.newGateway(net, changed)
	}
	if wanted && !r.policy.offline {
		if err := r.open(ctx); err != nil {
			return err
		}
	}
	if have == nil && r.gateway.current() == nil {
		r.gateway.await() //nolint:contextcheck // the link outlives the call
	}
	return nil
}

// open opens the network of the run's sandbox, or adds listeners for ports that are missing.
func (r *Run) open(ctx context.Context) error {
	beyond, err := r.gateway.extend(ctx, r.policy.ports)
	if beyond += r.policy.beyond; beyond > 0 {
		r.note = strconv.Itoa(beyond) + " open ports can be reached through the proxy only"
	}
	if err != nil {
		return r.without(ctx, err)
	}
	return nil
}

// without returns err if the run needs the network. Otherwise it notes err: a session keeps the
// network it had.
func (r *Run) without(ctx context.Context, err error) error {
	if len(r.policy.only) > 0 || ctx.Err() != nil {
		return err
	}
	r.note = "not available: " + sandboxmcp.AsError(err).Message
	return nil
}

// Note says what of the network is not available, for the metadata of the result. It is empty if
// all is.
func (r *Run) Note() string {
	if r.note == "" && r.gateway != nil {
		if err := r.gateway.failed(); err != nil {
			return "what programs try to reach is not reported: " + sandboxmcp.AsError(err).Message
		}
	}
	return r.note
}

// Wall returns the wall that keeps the run's programs from the network, if that is not the one
// that was observed when the run began: attempts were told since, or a host was opened. Otherwise
// it is empty.
func (r *Run) Wall() string {
	if r.gateway == nil {
		return ""
	}
	return r.gateway.wall()
}

// Gateway returns the gateway of the run's sandbox; nil if it has none.
func (r *Run) Gateway() *Gateway { return r.gateway }

// LetOut activates the policy of a run in its sandbox's network. It first records what was refused
// since the session's last run. If that fails, the run must not begin. Connections that the new
// policy closes are in this run's report. masker masks the secrets of the run. secrets finds
// secrets in names that a person is asked about.
func (r *Run) LetOut(ctx context.Context, masker *redact.Masker, secrets Secrets) error {
	w := r.gateway
	if w == nil {
		return nil
	}
	r.policy.masker, r.policy.secrets = masker, secrets
	before := w.begin(r.policy)
	before.masker = r.policy.masker // it also masks secrets of earlier runs
	if before.who.SessionID == "" {
		before.who, before.actor = r.policy.who, r.policy.actor // the network is new: there was no earlier run
	}
	r.out = true
	link := w.current()
	if link == nil {
		return nil
	}
	left := link.Report(true)
	w.review()
	return w.settle(ctx, before, left)
}

// End ends a run's network access. The gateway of a session stays open. Another gateway allows
// nothing from now on; its connections are closed in the background.
func (r *Run) End(session bool) {
	switch {
	case r.gateway == nil:
	case session:
		r.gateway.end()
	case r.gateway.current() == nil: // nothing has to be waited for
		r.gateway.Close()
	default:
		r.gateway.set(func(p policy) policy { p.offline = true; return p })
		r.e.work.Go(r.gateway.Close)
	}
}

// Report returns what the run did on the network, as the proxy observed it, with secrets
// masked. It returns nil if no program has used the network.
func (r *Run) Report() *sandboxmcp.Network {
	if r.gateway == nil {
		return nil
	}
	link := r.gateway.current()
	if link == nil {
		return nil
	}
	n := r.policy.masked(link.Report(true).Network())
	r.network, r.opened = &n, r.gateway.openedSince()
	return r.network
}

// Opened is a domain that was opened while a run went on, and that the run has used.
type Opened struct {
	Domain string    `json:"domain"`
	At     time.Time `json:"at"` // of the run's first connection by it
}

// Opened lists these domains, after Report.
func (r *Run) Opened() []Opened { return r.opened }

// Refused returns the destinations refused to a run that has no result.
func (r *Run) Refused() []sandboxmcp.DeniedRequest {
	if r.network == nil && r.out {
		r.Report()
	}
	if r.network == nil {
		return nil
	}
	return r.network.Denied
}

// Environ returns the environment variables that describe the network, or nil if there is no
// network. The caller may change the map.
func (r *Run) Environ() map[string]string {
	if r.gateway == nil || r.policy.offline {
		return nil
	}
	return r.gateway.environ()
}

// Open lists the open domains of a run that has a network.
func (r *Run) Open() []string {
	if r.policy.narrowed || r.policy.granted {
		return texts(r.policy.only)
	}
	return texts(r.policy.open)
}
