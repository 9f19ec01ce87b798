package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// egressPolicy says which hosts a run may reach.
type egressPolicy struct {
	who      gate.Who
	narrowed bool                // only domains that are in only and also open
	granted  bool                // every domain in only: the caller may open domains
	only     []sandboxmcp.Domain // allowed_domains of the request; for narrowed and granted
	offline  bool                // no host at all
	wanted   bool                // a network is needed: a domain is open or may be opened, or attempts are counted
	own      bool                // ignore what is open to the namespace: the request has its own list, and approvals are not asked for
	hold     time.Duration
	ports    []int               // other ports of open domains, which the sandbox listens on
	beyond   int                 // how many more such ports there are
	open     []sandboxmcp.Domain // open domains when the run began
	actor    string
	masker   *redact.Masker // finds secrets in host names; nil: there are none
}

// mayReach is the gate: it sets which hosts a run may reach. It fails if the request
// names a domain that the run may not reach. The gate is asked again at each connection,
// because domains may be opened and closed during the run.
func (e *Engine) mayReach(x *execution) error {
	r := &x.req
	x.policy = egressPolicy{who: gate.Who{Namespace: x.who.Namespace, SessionID: r.SessionID, RequestID: r.ID}, actor: x.who.Actor}
	at := &x.policy
	if x.session != nil {
		at.who.Born = x.session.Info().CreatedAt
	}
	if at.offline = r.Offline || x.newborn && r.Session.Offline || x.live != nil && x.live.offline; at.offline {
		if len(r.AllowedDomains) > 0 {
			return sandboxmcp.Errorf(sandboxmcp.CodeEgressDenied, "this session has no network, even to open domains").
				WithHint("use a session that execute_code or create_session made")
		}
		return nil
	}
	open, err := e.gate.Open(x.ctx, at.who)
	if err != nil {
		return err
	}
	if r.AllowedDomains != nil {
		if open, err = e.allowList(x, open); err != nil {
			return err
		}
	}
	if at.hold = e.cfg.Hold; r.Hold > 0 {
		at.hold = r.Hold
	}
	if e.cfg.NoAsking {
		if at.hold = 0; r.Hold > 0 {
			return gate.Off()
		}
	}
	at.own = at.granted && at.hold == 0
	at.open = open
	at.listen()
	at.wanted = len(open) > 0 || e.cfg.Network || at.hold > 0
	return nil
}

// maxListeners bounds the named ports that a sandbox listens on. Persons open domains one
// at a time; without a bound, many of them would make the whole network fail.
const maxListeners = 24

// listen chooses the ports to listen on, up to maxListeners. Other ports are reached
// through the proxy only. Port 53 and the proxy's port are taken by the sandbox's own DNS
// and proxy.
func (r *egressPolicy) listen() {
	seen := map[int]bool{0: true, 80: true, 443: true} // ports that always have a listener
	for _, d := range r.open {
		switch {
		case seen[d.Port]:
		case d.Port == 53 || d.Port == backend.ProxyPort || len(r.ports) == maxListeners:
			r.beyond++
		default:
			r.ports = append(r.ports, d.Port)
		}
		seen[d.Port] = true
	}
}

// allowList checks the domains that a request names. A caller that may not open domains
// can only choose among open ones.
func (e *Engine) allowList(x *execution, open []sandboxmcp.Domain) ([]sandboxmcp.Domain, error) {
	r, at := &x.req, &x.policy
	if len(r.AllowedDomains) > maxAllowList {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "allowed_domains has %d entries; at most %d are allowed", len(r.AllowedDomains), maxAllowList)
	}
	at.granted, at.narrowed = r.GrantDomains, !r.GrantDomains
	at.only = []sandboxmcp.Domain{}
	for _, text := range r.AllowedDomains {
		d, err := gate.ParseDomain(text, 0)
		switch {
		case err != nil && at.narrowed && strings.HasPrefix(text, "*"): // such as * or *.com, which are never open
			return nil, notOpen(sandboxmcp.Quote(text))
		case err != nil:
			return nil, err
		case gate.Covered(open, d):
			if err := e.plainDomain(x, open, d); err != nil {
				return nil, err
			}
		case at.narrowed:
			return nil, notOpen(d.String()).With("domain", d.String())
		case e.cfg.NoAsking:
			return nil, gate.Off()
		}
		at.only = append(at.only, d)
	}
	return at.only, nil
}

const maxAllowList = 256

// plainDomain refuses a name below an open wildcard if it contains a secret. The caller
// chose that name, and the audit log shows it.
func (e *Engine) plainDomain(x *execution, open []sandboxmcp.Domain, d sandboxmcp.Domain) error {
	if x.policy.granted || slices.Contains(open, d) {
		return nil
	}
	return e.plainName(x.ctx, x.who.Namespace, "a domain of allowed_domains", d.String())
}

func notOpen(domain string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeEgressDenied, "%s is not open; allowed_domains can only choose among open domains", domain).
		WithHint("ask a person for it with request_egress, then run again")
}

// describe adds the allowed_domains of a run to its intent.
func (r *egressPolicy) describe(entry *sandboxmcp.AuditEntry) {
	if r.narrowed || r.granted {
		entry.Metadata["allowed_domains"] = texts(r.only)
	}
}

// openings returns the audit entry for domains that the caller opens for its run; nil if
// there are none.
func (e *Engine) openings(x *execution) *sandboxmcp.AuditEntry {
	if !x.policy.granted || len(x.policy.only) == 0 {
		return nil
	}
	return &sandboxmcp.AuditEntry{
		Action: "egress_approved", Phase: sandboxmcp.PhaseOutcome, RequestID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace, Actor: x.who.Actor,
		Detail: strconv.Itoa(len(x.policy.only)) + " domains for one run", Metadata: map[string]any{"domains": texts(x.policy.only), "scope": sandboxmcp.GrantOnce},
	}
}

func texts(domains []sandboxmcp.Domain) []string {
	list := make([]string, 0, len(domains))
	for _, d := range domains {
		list = append(list, d.String())
	}
	return list
}

// gateway is the network of a sandbox. It implements the policy of its link and asks the gate
// at each connection.
type gateway struct {
	e    *Engine
	net  backend.Networker
	link *egress.Link

	closed chan struct{}
	ending sync.Once

	mu    sync.Mutex
	env   map[string]string // environment variables that describe the network
	ports []int
	at    egressPolicy // policy of the current run, or the policy between two runs of a session
}

// connect opens the network of a sandbox if its run needs one. The run's policy applies
// only after letOut.
func (e *Engine) connect(x *execution, sb backend.Sandbox) error {
	if x.live != nil {
		x.gateway = x.live.currentGateway()
	}
	if x.policy.offline || x.gateway == nil && !x.policy.wanted {
		return nil
	}
	w, err := e.openGateway(x, sb)
	if err != nil {
		if x.ctx.Err() != nil {
			return cancelledError(x.ctx)
		}
		if len(x.policy.only) > 0 { // the request names domains
			return err
		}
		x.metadata["network"] = "not available: " + sandboxmcp.AsError(err).Message // a session keeps the network it had
		return nil
	}
	x.gateway = w
	if x.live != nil && x.live.adopt(w) {
		x.live.Changed() // the last report may say that there is no network
	}
	return nil
}

// wayOut returns the network of the run's sandbox. It creates it if there is none, and
// adds listeners for ports that are missing.
func (e *Engine) openGateway(x *execution, sb backend.Sandbox) (*gateway, error) {
	w := x.gateway
	if w == nil {
		net, ok := sb.(backend.Networker)
		if !ok {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the backend %s has no network", x.req.Backend).WithHint("use the process backend")
		}
		w = &gateway{e: e, net: net, at: egressPolicy{offline: true}} // processes left by earlier runs had no network
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	missing := slices.DeleteFunc(slices.Clone(x.policy.ports), func(p int) bool { return slices.Contains(w.ports, p) })
	if free := maxListeners - len(w.ports); len(missing) > free { // earlier runs of the session took some
		x.policy.beyond += len(missing) - free
		missing = missing[:free]
	}
	if x.policy.beyond > 0 {
		x.metadata["network"] = strconv.Itoa(x.policy.beyond) + " open ports can be reached through the proxy only"
	}
	if w.link != nil && len(missing) == 0 {
		return w, nil
	}
	n, err := w.net.Network(x.ctx, missing)
	if err != nil {
		return nil, err
	}
	w.ports = append(w.ports, missing...)
	w.env = map[string]string{}
	for _, kv := range n.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		w.env[k] = v
	}
	if w.link == nil {
		w.link, w.closed = e.proxy.Attach(n, w), make(chan struct{})
		e.work.Go(w.watch)
		return w, nil
	}
	w.link.Serve(n)
	return w, nil
}

// letOut puts the policy of a run into force on its sandbox's network. It first records
// what was refused since the session's last run; if that fails, the run does not begin.
// Connections that the new policy cuts are reported in this run's result.
func (e *Engine) letOut(x *execution) error {
	w := x.gateway
	if w == nil {
		return nil
	}
	x.policy.masker = x.guard.masker
	before := w.set(func(egressPolicy) egressPolicy { return x.policy })
	before.masker = x.policy.masker // it also masks secrets of earlier runs
	if before.who.SessionID == "" {
		before.who, before.actor = x.policy.who, x.policy.actor // the network is new: there was no earlier run
	}
	x.out = true
	left := w.link.Report(true)
	w.review()
	return w.settle(x.ctx, before, left)
}

// settle records what was refused to a session between two runs.
func (w *gateway) settle(ctx context.Context, at egressPolicy, left egress.Report) error {
	denied := at.masked(left.Network()).Denied
	if len(denied) == 0 || at.who.SessionID == "" {
		return nil
	}
	var ops []store.Op
	for _, entry := range refusals(denied, sandboxmcp.AuditEntry{Namespace: at.who.Namespace, SessionID: at.who.SessionID, Actor: at.actor}) {
		entry.Metadata["between_runs"] = true
		ops = append(ops, w.e.audit.Op(entry))
	}
	return w.e.store.Update(context.WithoutCancel(ctx), ops...)
}

// end takes the run's policy out of force. allowed_domains that narrow still bind
// processes that the run left behind. If the caller opened domains for the run, such
// processes lose the network.
func (w *gateway) end() {
	w.set(func(r egressPolicy) egressPolicy {
		r.who.RequestID, r.hold = "", 0
		r.offline = r.offline || r.granted
		return r
	})
	w.review()
}

// set changes the policy and returns the former one.
func (w *gateway) set(change func(egressPolicy) egressPolicy) (before egressPolicy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.at
	w.at = change(before)
	return before
}

// review closes connections that the policy no longer allows. Processes that a run left
// behind may still have some.
func (w *gateway) review() { w.link.Review(w.holds) }

// holds reports whether an existing connection may stay.
func (w *gateway) holds(ask egress.Ask) bool {
	r := w.policy()
	r.hold = 0 // do not ask a person about an existing connection
	return w.judge(context.WithoutCancel(w.e.ctx), r, ask).Allowed
}

// watch closes connections to domains that were closed, or whose grant has expired.
func (w *gateway) watch() {
	t := time.NewTicker(reviewEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.link.Cut(w.holds)
		case <-w.closed:
			return
		case <-w.e.ctx.Done(): // Close waits for this goroutine before it closes sessions
			return
		}
	}
}

const reviewEvery = 500 * time.Millisecond

func (w *gateway) close() {
	if w != nil {
		w.ending.Do(func() { close(w.closed) })
		w.link.Close()
	}
}

// closeSession is close for a session. It first records what was refused since the last
// run.
func (w *gateway) closeSession() {
	if w == nil {
		return
	}
	if err := w.settle(w.e.ctx, w.policy(), w.link.Report(true)); err != nil {
		w.e.log.Error("record what a session was refused after its last run", "error", err)
	}
	w.close()
}

// disconnect ends a run's access to the network. For a single run it closes the network.
func (e *Engine) disconnect(x *execution) {
	switch {
	case x.gateway == nil:
	case x.live != nil:
		x.gateway.end()
	default:
		e.work.Go(x.gateway.close)
	}
}

func (w *gateway) policy() egressPolicy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *gateway) told() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.env
}

// Decide says whether a connection may leave. If connections are held, it asks a person
// and waits for the answer.
func (w *gateway) Decide(ctx context.Context, ask egress.Ask) egress.Verdict {
	return w.judge(ctx, w.policy(), ask)
}

func (w *gateway) judge(ctx context.Context, r egressPolicy, ask egress.Ask) egress.Verdict {
	listed := slices.IndexFunc(r.only, func(d sandboxmcp.Domain) bool { return d.Match(ask.Host, ask.Port) })
	switch {
	case r.offline:
		return egress.Verdict{Rule: "offline", Reason: "this run has no network"}
	case r.tells(ask.Host):
		return egress.Verdict{Rule: "vault", Reason: "the name contains a secret"}
	case r.granted && listed >= 0:
		return egress.Verdict{Allowed: true, Rule: r.only[listed].String()}
	case r.narrowed && listed < 0:
		return egress.Verdict{Rule: "allowed_domains", Reason: "it is not among the allowed_domains of this run"}
	}
	rule, ok := w.open(ctx, r, ask)
	if !ok && r.hold > 0 {
		rule, ok = w.held(ctx, r, ask)
	}
	if ok {
		return egress.Verdict{Allowed: true, Rule: rule}
	}
	return egress.Verdict{Reason: "nobody has opened it"}
}

// open asks the gate, unless the run has its own list. On error nothing is open.
func (w *gateway) open(ctx context.Context, r egressPolicy, ask egress.Ask) (string, bool) {
	if r.own {
		return "", false
	}
	rule, ok, err := w.e.gate.Allows(ctx, r.who, ask.Host, ask.Port)
	if err != nil {
		w.e.log.Error("look up what is open", "error", err)
		return "", false
	}
	return rule, ok
}

// held asks a person and waits up to r.hold for the answer.
func (w *gateway) held(ctx context.Context, r egressPolicy, ask egress.Ask) (string, bool) {
	a, err := w.e.ask(ctx, sandboxmcp.Caller{Namespace: r.who.Namespace, Actor: r.actor}, sandboxmcp.EgressAsk{
		Domain: string(ask.Host), Port: ask.Port, SessionID: r.who.SessionID, RequestID: r.who.RequestID,
	})
	if err != nil || a.Status == sandboxmcp.ApprovalDenied {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, r.hold)
	defer cancel()
	rule, ok := "", false
	open := func() bool {
		if w.policy().who != r.who { // the run has ended: the policy is now that of another run
			return false
		}
		rule, ok = w.open(ctx, r, ask)
		return ok
	}
	if _, err := w.e.gate.Wait(ctx, a.ID, open); err != nil {
		return "", false
	}
	return rule, ok || open()
}

// AllowsName reports whether a name may be resolved: if it is open at any port or, while
// connections are held, if it may be asked for.
func (w *gateway) AllowsName(h sandboxmcp.Host) bool {
	r := w.policy()
	in := func(list []sandboxmcp.Domain) bool {
		return slices.ContainsFunc(list, func(d sandboxmcp.Domain) bool { return d.MatchHost(h) })
	}
	switch {
	case r.offline, r.tells(h):
		return false
	case r.narrowed && !in(r.only):
		return false
	case r.granted && in(r.only):
		return true
	case r.hold > 0:
		_, err := sandboxmcp.ParseDomain(string(h))
		return err == nil
	case r.granted:
		return false
	}
	open, err := w.e.gate.Open(w.e.ctx, r.who)
	return err == nil && in(open)
}

// tells reports whether a name contains a secret. DNS servers, and a person who is asked,
// would read it.
func (r egressPolicy) tells(h sandboxmcp.Host) bool {
	return r.masker != nil && r.masker.Find([]byte(h)) != ""
}

// masked returns n with secrets masked.
func (r egressPolicy) masked(n sandboxmcp.Network) sandboxmcp.Network {
	if r.masker == nil {
		return n
	}
	for i, text := range n.Allowed {
		n.Allowed[i] = r.masker.Text(text)
	}
	for i, d := range n.Denied {
		n.Denied[i].Host, n.Denied[i].Reason = r.masker.Text(d.Host), r.masker.Text(d.Reason)
	}
	return n
}

// refused returns the destinations that were refused to a run that has no result.
func (x *execution) refused() []sandboxmcp.DeniedRequest {
	if x.network == nil && x.out {
		n := x.policy.masked(x.gateway.link.Report(true).Network())
		x.network = &n
	}
	if x.network == nil {
		return nil
	}
	return x.network.Denied
}

// environ returns the environment variables that describe the network; nil if there is
// none.
func (x *execution) environ() map[string]string {
	if x.gateway == nil || x.policy.offline {
		return nil
	}
	env := maps.Clone(x.gateway.told())
	if x.live != nil {
		env["SANDBOX_POLICY"] = policyText(x.limits, x.openText())
	}
	return env
}

// cellEnv returns the variables that a cell gets in addition to those of its interpreter:
// those of the network, then those of the caller, which win.
func (x *execution) cellEnv() map[string]string {
	env := x.environ()
	if env == nil {
		return x.req.Env
	}
	maps.Copy(env, x.req.Env)
	return env
}

// openText lists the open domains of a run that has a network.
func (x *execution) openText() []string {
	if x.policy.narrowed || x.policy.granted {
		return texts(x.policy.only)
	}
	return texts(x.policy.open)
}

// openTo lists the domains that are open to a request now.
func (e *Engine) openTo(x *execution) []string {
	if x.req.Offline || x.req.Session != nil && x.req.Session.Offline {
		return []string{}
	}
	who := gate.Who{Namespace: x.who.Namespace, SessionID: x.req.SessionID, RequestID: x.req.ID}
	if x.session != nil {
		who.Born = x.session.Info().CreatedAt
	}
	open, err := e.gate.Open(x.ctx, who)
	if err != nil {
		return []string{}
	}
	return texts(open)
}

// reportNetwork puts the run's network use into its result, as the proxy observed it.
func (e *Engine) reportNetwork(x *execution, res *sandboxmcp.Result) {
	if x.gateway != nil {
		res.Network = x.policy.masked(x.gateway.link.Report(true).Network())
		n := res.Network
		x.network = &n
	}
	if weak := e.proxy.Weak(); len(weak) > 0 && res.Isolation != nil {
		iso := *res.Isolation
		iso.Weak = slices.Concat(iso.Weak, weak)
		res.Isolation = &iso
	}
}

// refusals returns an audit entry for each refused destination. The last one, after
// maxRefusals, counts the rest. All are copies of like with their own details.
func refusals(denied []sandboxmcp.DeniedRequest, like sandboxmcp.AuditEntry) []*sandboxmcp.AuditEntry {
	list := make([]*sandboxmcp.AuditEntry, 0, min(len(denied), maxRefusals))
	for i, d := range denied {
		entry := like
		entry.Action, entry.Phase = "egress_denied", sandboxmcp.PhaseOutcome
		entry.Detail = fmt.Sprintf("%s:%d, %d times", d.Host, d.Port, d.Times)
		entry.Metadata = map[string]any{"host": d.Host, "port": d.Port, "times": d.Times, "reason": d.Reason}
		if i == maxRefusals-1 && len(denied) > maxRefusals {
			n := len(denied) - i
			entry.Detail, entry.Metadata = strconv.Itoa(n)+" more destinations", map[string]any{"destinations": n}
			return append(list, &entry)
		}
		list = append(list, &entry)
	}
	return list
}

const maxRefusals = 32
