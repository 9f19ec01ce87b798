package engine

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/note"
)

// openEgress makes the gate that decides which hosts programs may reach, and the proxy that connects to them.
func (e *Engine) openEgress() {
	c := e.cfg
	e.egress = gateway.New(e.ctx, gateway.Config{
		Store: e.store, Audit: e.audit, Key: e.key.Derive, Endings: e.endings, Events: e.events, Rules: networkRules(&c), Detours: c.Detours, Resolver: c.Resolver, Notices: c.Notices, Invocation: c.Invocation, Now: c.Now, Logger: c.Logger,
	})
}

// networkRules are what a configuration says about the network.
func networkRules(c *Config) gateway.Rules {
	return gateway.Rules{Network: c.Network, Backends: c.NetworkBackends, Operator: c.Operator, NoAsking: c.NoAsking, Hold: c.Hold, Private: c.Private}
}

// mayReach is the gate: it returns which hosts a run may reach. It fails if the request
// names a domain that the run may not reach. The gate is asked again at each connection,
// because domains may be opened and closed during the run.
func (e *Engine) mayReach(x *execution) (*gateway.Run, error) {
	return e.egress.NewRun(x.ctx, e.networkRequest(x))
}

// networkRequest is what a request and its session say about the network.
func (e *Engine) networkRequest(x *execution) gateway.Request {
	r := &x.req
	n := gateway.Request{
		Caller: x.who, ID: r.ID, SessionID: r.SessionID, Backend: r.Backend,
		Offline: r.Offline || x.newborn && r.Session.Offline || x.live != nil && x.live.offline,
		Domains: r.AllowedDomains, Grant: r.GrantDomains, Hold: r.Hold, Reader: r.Reader, Asks: note.For(r).Asks(), Names: e.guard.Secrets(x.who.Namespace, nil),
	}
	if x.session != nil {
		n.Born = x.session.Info().CreatedAt
	}
	return n
}

// connect gives a sandbox its gateway, and opens the network if its run may reach a host. The
// run's policy applies only after letOut.
func (e *Engine) connect(x *execution, sb backend.Sandbox) error {
	var have *gateway.Gateway
	if x.live != nil {
		have = x.live.currentGateway()
	}
	changed := func() {}
	if x.live != nil {
		changed = x.live.Changed // the last report may say that there is no network
	}
	if err := x.network.Connect(x.ctx, sb, have, changed); err != nil {
		if x.ctx.Err() != nil {
			return cancelledError(x.ctx)
		}
		return err
	}
	if w := x.network.Gateway(); w != nil && x.live != nil {
		x.live.adopt(w)
	}
	return nil
}

// letOut puts the policy of a run into force on its sandbox's network. It first records
// what was refused since the session's last run; if that fails, the run does not begin.
func (e *Engine) letOut(x *execution) error {
	return x.network.LetOut(x.ctx, x.secrets.Masker(), e.guard.Secrets(x.who.Namespace, x.live.secretsHad()))
}

// environ returns the environment variables that describe the network; nil if there is
// none.
func (x *execution) environ() map[string]string {
	if x.network == nil { // none was opened yet
		return nil
	}
	env := x.network.Environ()
	if env != nil && x.live != nil {
		env["SANDBOX_POLICY"] = policyText(x.limits, x.network.Open())
	}
	return env
}

// cellEnv returns the variables that a cell gets in addition to those of its interpreter:
// paths, those of the network, then those of the caller, which win.
func (x *execution) cellEnv(paths map[string]string) map[string]string {
	env := x.environ()
	if env == nil && len(paths) == 0 {
		return x.req.Env
	}
	maps.Copy(paths, env)
	maps.Copy(paths, x.req.Env)
	return paths
}

// reportNetwork puts the run's network use into its result, as the proxy observed it.
func (e *Engine) reportNetwork(x *execution, res *sandboxmcp.Result) {
	if n := x.network.Report(); n != nil {
		res.Network = *n
	}
	if note := x.network.Note(); note != "" {
		res.Metadata["network"] = note
	}
	if opened := x.network.Opened(); len(opened) > 0 {
		res.Metadata["network_opened"] = opened
	}
	if wall := x.network.Wall(); wall != "" && res.Isolation != nil {
		iso := *res.Isolation
		iso.Walls = slices.Clone(iso.Walls)
		for i, w := range iso.Walls {
			if w == sandboxmcp.WallNoNetwork || w == sandboxmcp.WallTold || w == sandboxmcp.WallToldNames {
				iso.Walls[i] = wall
			}
		}
		res.Isolation = &iso
	}
	if weak := e.egress.Weak(); len(weak) > 0 && res.Isolation != nil {
		iso := *res.Isolation
		iso.Weak = slices.Concat(iso.Weak, weak)
		res.Isolation = &iso
	}
}

// RequestEgress asks a person to open a domain to the programs of a namespace. It waits
// up to ask.Wait for the answer. A domain that is already open is approved at once. If
// approvals are turned off, any other domain is denied. It fails with invalid_argument or
// blocked_address for a domain that cannot be opened, and with queue_full if too many
// approvals are pending.
func (e *Engine) RequestEgress(ctx context.Context, c sandboxmcp.Caller, ask sandboxmcp.EgressAsk) (sandboxmcp.AccessAnswer, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.AccessAnswer{}, err
	}
	q, err := e.egress.Question(ctx, c, ask, e.born(c.Namespace, ask.SessionID), e.backendOf(ctx, c.Namespace, ask.SessionID))
	if err != nil || q.Answered {
		return q.Answer, err
	}
	masks, err := e.masks(ctx, c.Namespace, ask.SessionID)
	if err != nil {
		return q.Answer, err
	}
	return e.egress.Ask(ctx, q, masks, ask.Wait)
}

// FindApproval returns an approval of any kind and its state. It fails with request_not_found. It
// accepts EveryNamespace.
func (e *Engine) FindApproval(ctx context.Context, c sandboxmcp.Caller, id string) (a sandboxmcp.Approval, err error) {
	for _, find := range []func(context.Context, sandboxmcp.Namespace, string) (sandboxmcp.Approval, error){e.egress.Find, e.host.Find, e.asks.Find} {
		if a, err = find(ctx, e.listed(c), id); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
			return a, err
		}
	}
	return a, sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no approval %s is known", sandboxmcp.Quote(id)).
		WithHint("it may have been dropped, which happens a week after its end")
}

// DecideEgress carries out a decision of a person: it answers an approval, or opens a
// domain that was not asked for. The audit entry is written in the same transaction, so a
// decision that cannot be recorded has no effect. An MCP tool may call it only with an
// answer that the client got from a person.
func (e *Engine) DecideEgress(ctx context.Context, c sandboxmcp.Caller, d sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error) {
	c, err := e.decider(ctx, c, d)
	if err != nil {
		return sandboxmcp.AccessAnswer{}, err
	}
	return e.egress.Decide(ctx, c, d)
}

// RevokeEgress closes a domain that persons opened in one namespace. Grants of other
// domains, such as a wildcard above it, stay. It fails with request_not_found if there is
// no such grant.
func (e *Engine) RevokeEgress(ctx context.Context, c sandboxmcp.Caller, domain string) (sandboxmcp.AccessRevoked, error) {
	c, err := e.caller(c)
	if err != nil {
		return sandboxmcp.AccessRevoked{}, err
	}
	return e.egress.Revoke(ctx, c, domain)
}

// Egress lists pending approvals and grants. It accepts EveryNamespace.
func (e *Engine) Egress(ctx context.Context, c sandboxmcp.Caller) (sandboxmcp.AccessList, error) {
	l, err := e.egress.List(ctx, e.listed(c))
	if err == nil {
		l.Granted, err = e.usable(ctx, l.Granted)
	}
	return l, err
}

// egressState returns the open domains and pending approvals of a namespace. If id is a
// live session, grants for that session count too.
func (e *Engine) egressState(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) (sandboxmcp.EgressState, error) {
	if id != "" {
		if s, err := e.sessions.Find(ctx, ns, id); err == nil {
			if r, ok := s.Room().(*liveSession); ok && r.offline {
				return gateway.NoState(), nil
			}
			return e.egress.State(ctx, ns, id, s.Info().CreatedAt, s.Info().Backend)
		}
	}
	return e.egress.State(ctx, ns, "", time.Time{}, e.cfg.DefaultBackend)
}

// backendOf returns the backend of a live session; without one, that of runs which name none.
func (e *Engine) backendOf(ctx context.Context, ns sandboxmcp.Namespace, id sandboxmcp.SessionID) string {
	if id != "" {
		if s, err := e.sessions.Find(ctx, ns, id); err == nil {
			return s.Info().Backend
		}
	}
	return e.cfg.DefaultBackend
}

// checkDomains refuses a text that is not a domain, so that a background run is refused at its
// start. It does not check wildcards. The egress policy checks those.
func checkDomains(texts []string) error {
	for _, text := range texts {
		if _, err := gate.ParseDomain(text, 0); err != nil && !strings.HasPrefix(text, "*") {
			return err
		}
	}
	return nil
}
