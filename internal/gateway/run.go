package gateway

import (
	"context"
	"maps"
	"strconv"

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
	network *sandboxmcp.Network // what the run did on the network; nil: not reported yet
}

// Connect opens the network of a sandbox if the run needs one. The run's policy applies only after
// LetOut. have is the sandbox's gateway from earlier runs; nil: none. Connect fails only if the
// request names domains or ctx has ended. The gateway is then have.
func (r *Run) Connect(ctx context.Context, sb backend.Sandbox, have *Gateway) error {
	r.gateway = have
	if r.policy.offline || have == nil && !r.policy.wanted {
		return nil
	}
	w, err := r.open(ctx, sb)
	if err != nil {
		if len(r.policy.only) > 0 || ctx.Err() != nil {
			return err
		}
		r.note = "not available: " + sandboxmcp.AsError(err).Message // a session keeps the network it had
		return nil
	}
	r.gateway = w
	return nil
}

// Note says what of the network is not available, for the metadata of the result. It is empty if
// all is.
func (r *Run) Note() string { return r.note }

// open returns the network of the run's sandbox. It creates it if there is none, and adds
// listeners for ports that are missing.
func (r *Run) open(ctx context.Context, sb backend.Sandbox) (*Gateway, error) {
	w := r.gateway
	if w == nil {
		net, ok := sb.(backend.Networker)
		if !ok {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the backend %s has no network", r.backend).WithHint("use the process backend")
		}
		w = &Gateway{e: r.e, net: net, at: policy{offline: true}} // processes left by earlier runs had no network
	}
	beyond, err := w.extend(ctx, r.policy.ports)
	if beyond += r.policy.beyond; beyond > 0 {
		r.note = strconv.Itoa(beyond) + " open ports can be reached through the proxy only"
	}
	if err != nil {
		return nil, err
	}
	return w, nil
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
	before := w.set(func(policy) policy { return r.policy })
	before.masker = r.policy.masker // it also masks secrets of earlier runs
	if before.who.SessionID == "" {
		before.who, before.actor = r.policy.who, r.policy.actor // the network is new: there was no earlier run
	}
	r.out = true
	left := w.link.Report(true)
	w.review()
	return w.settle(ctx, before, left)
}

// End ends a run's network access. The gateway of a session stays open. Another gateway is closed
// in the background.
func (r *Run) End(session bool) {
	switch {
	case r.gateway == nil:
	case session:
		r.gateway.end()
	default:
		r.e.work.Go(r.gateway.Close)
	}
}

// Report returns what the run did on the network, as the proxy observed it, with secrets
// masked. It returns nil if the run's sandbox has no network.
func (r *Run) Report() *sandboxmcp.Network {
	if r.gateway == nil {
		return nil
	}
	n := r.policy.masked(r.gateway.link.Report(true).Network())
	r.network = &n
	return r.network
}

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
	return maps.Clone(r.gateway.environ())
}

// Open lists the open domains of a run that has a network.
func (r *Run) Open() []string {
	if r.policy.narrowed || r.policy.granted {
		return texts(r.policy.only)
	}
	return texts(r.policy.open)
}
