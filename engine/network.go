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

// reach is where to a run may go.
type reach struct {
	who      gate.Who
	narrowed bool                // only what is in only, as far as it is open
	granted  bool                // all that is in only, because the caller is who may open it
	only     []sandboxmcp.Domain // of narrowed and granted
	offline  bool                // nowhere
	wanted   bool                // there is somewhere to go, or somebody wants to know of attempts
	own      bool                // what the namespace has open is not its own: it has a list, and nobody is asked
	hold     time.Duration
	ports    []int               // that are named in what is open, and listened on
	beyond   int                 // how many others are named
	open     []sandboxmcp.Domain // when it began
	actor    string
	masker   *redact.Masker // finds secrets in names; nil: there are none
}

// mayReach is the gate: it finds out where to a run may go, and refuses one that
// would go where nobody lets it. What it finds open is looked up again at each
// connection: it may be closed meanwhile, and more may be opened.
func (e *Engine) mayReach(x *execution) error {
	r := &x.req
	x.reach = reach{who: gate.Who{Namespace: x.who.Namespace, SessionID: r.SessionID, RequestID: r.ID}, actor: x.who.Actor}
	at := &x.reach
	if x.session != nil {
		at.who.Born = x.session.Info().CreatedAt
	}
	if at.offline = r.Offline || x.newborn && r.Session.Offline || x.room != nil && x.room.offline; at.offline {
		if len(r.AllowedDomains) > 0 {
			return sandboxmcp.Errorf(sandboxmcp.CodeEgressDenied, "this session has no network, whatever is open").
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

// maxListeners is how many named ports a sandbox listens on. What a person opens, one at a
// time, may not keep all of the network from being opened.
const maxListeners = 24

// listen chooses the ports to listen on. Every other one is reached through the
// proxy alone: the sandbox's own DNS and proxy have theirs, and there is room for
// so many.
func (r *reach) listen() {
	seen := map[int]bool{0: true, 80: true, 443: true} // which are there
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

// allowList takes the domains that a request names. Who may not open any can
// only choose among those that are open.
func (e *Engine) allowList(x *execution, open []sandboxmcp.Domain) ([]sandboxmcp.Domain, error) {
	r, at := &x.req, &x.reach
	if len(r.AllowedDomains) > maxAllowList {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "allowed_domains has %d entries; at most %d are allowed", len(r.AllowedDomains), maxAllowList)
	}
	at.granted, at.narrowed = r.GrantDomains, !r.GrantDomains
	at.only = []sandboxmcp.Domain{}
	for _, text := range r.AllowedDomains {
		d, err := gate.ParseDomain(text, 0)
		switch {
		case err != nil && at.narrowed && strings.HasPrefix(text, "*"): // all there is, or all of com: not open, whatever is
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

// plainDomain refuses a name below a wildcard that holds a secret: the caller makes the
// name up, and the record of the run shows it.
func (e *Engine) plainDomain(x *execution, open []sandboxmcp.Domain, d sandboxmcp.Domain) error {
	if x.reach.granted || slices.Contains(open, d) {
		return nil
	}
	return e.plainName(x.ctx, x.who.Namespace, "a domain of allowed_domains", d.String())
}

func notOpen(domain string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeEgressDenied, "%s is not open; allowed_domains can only choose among what is", domain).
		WithHint("ask a person for it with request_egress, then run again")
}

// describe puts into the intent of a run where to it may go, if that is anywhere.
func (r *reach) describe(entry *sandboxmcp.AuditEntry) {
	if r.narrowed || r.granted {
		entry.Metadata["allowed_domains"] = texts(r.only)
	}
}

// openings is the record of what the caller of a run opens for it; nil: nothing.
func (e *Engine) openings(x *execution) *sandboxmcp.AuditEntry {
	if !x.reach.granted || len(x.reach.only) == 0 {
		return nil
	}
	return &sandboxmcp.AuditEntry{
		Action: "egress_approved", Phase: sandboxmcp.PhaseOutcome, RequestID: x.req.ID, SessionID: x.req.SessionID, Language: x.req.Language, Namespace: x.who.Namespace, Actor: x.who.Actor,
		Detail: strconv.Itoa(len(x.reach.only)) + " domains for one run", Metadata: map[string]any{"domains": texts(x.reach.only), "scope": sandboxmcp.GrantOnce},
	}
}

func texts(domains []sandboxmcp.Domain) []string {
	list := make([]string, 0, len(domains))
	for _, d := range domains {
		list = append(list, d.String())
	}
	return list
}

// way is a sandbox's way out. It is the policy of its link, too: what may pass is
// looked up when something wants to.
type way struct {
	e    *Engine
	net  backend.Networker
	link *egress.Link

	closed chan struct{}
	ending sync.Once

	mu    sync.Mutex
	env   map[string]string // what programs are told of it
	ports []int
	at    reach // of the run that is going, or what holds between two
}

// connect opens the way out of a sandbox where there is somewhere to go. Nothing
// leaves by it that could not before, until letOut says so.
func (e *Engine) connect(x *execution, sb backend.Sandbox) error {
	if x.room != nil {
		x.way = x.room.wayOut()
	}
	if x.reach.offline || x.way == nil && !x.reach.wanted {
		return nil
	}
	w, err := e.wayOut(x, sb)
	if err != nil {
		if x.ctx.Err() != nil {
			return cancelledError(x.ctx)
		}
		if len(x.reach.only) > 0 { // it was asked for in so many words
			return err
		}
		x.metadata["network"] = "not available: " + sandboxmcp.AsError(err).Message // of a session, what was there before is there still
		return nil
	}
	x.way = w
	if x.room != nil && x.room.adopt(w) {
		x.room.walls.stale() // it had no network, which a report may still say
	}
	return nil
}

// wayOut opens what is missing of a way out.
func (e *Engine) wayOut(x *execution, sb backend.Sandbox) (*way, error) {
	w := x.way
	if w == nil {
		net, ok := sb.(backend.Networker)
		if !ok {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the backend %s has no network", x.req.Backend).WithHint("use the process backend")
		}
		w = &way{e: e, net: net, at: reach{offline: true}} // what a session left running was not let out before
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	missing := slices.DeleteFunc(slices.Clone(x.reach.ports), func(p int) bool { return slices.Contains(w.ports, p) })
	if room := maxListeners - len(w.ports); len(missing) > room { // of a session, earlier runs had others
		x.reach.beyond += len(missing) - room
		missing = missing[:room]
	}
	if x.reach.beyond > 0 {
		x.metadata["network"] = strconv.Itoa(x.reach.beyond) + " ports that are open are reached through the proxy alone"
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

// letOut makes the way out of a run's sandbox, if there is one, the run's own.
// What was refused before is in no result: it is on record, or the run does not
// begin. What is cut because this run may not go there is in its own.
func (e *Engine) letOut(x *execution) error {
	w := x.way
	if w == nil {
		return nil
	}
	x.reach.masker = x.guard.masker
	before := w.set(func(reach) reach { return x.reach })
	before.masker = x.reach.masker // which knows what the session had before, too
	if before.who.SessionID == "" {
		before.who, before.actor = x.reach.who, x.reach.actor // nobody was let out before
	}
	x.out = true
	left := w.link.Report(true)
	w.review()
	return w.settle(x.ctx, before, left)
}

// settle records what was refused to a session between two runs.
func (w *way) settle(ctx context.Context, at reach, left egress.Report) error {
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

// end takes a way from its run. What the run's caller narrowed it to still holds
// for what the run left behind; what the caller opened for it does not.
func (w *way) end() {
	w.set(func(r reach) reach {
		r.who.RequestID, r.hold = "", 0
		r.offline = r.offline || r.granted
		return r
	})
	w.review()
}

// set changes where to the way leads, and returns where it led before.
func (w *way) set(change func(reach) reach) (before reach) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.at
	w.at = change(before)
	return before
}

// review ends the connections that may not be there any more: what a run left
// running has them still.
func (w *way) review() { w.link.Review(w.holds) }

// holds tells whether a connection that is there may go on.
func (w *way) holds(ask egress.Ask) bool {
	r := w.reach()
	r.hold = 0 // nobody is asked for what is there
	return w.judge(context.WithoutCancel(w.e.ctx), r, ask).Allowed
}

// watch ends connections to what was closed, or has lapsed, since they were made.
func (w *way) watch() {
	t := time.NewTicker(reviewEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.link.Cut(w.holds)
		case <-w.closed:
			return
		case <-w.e.ctx.Done(): // sessions are closed after everything that Close waits for
			return
		}
	}
}

const reviewEvery = 500 * time.Millisecond

func (w *way) close() {
	if w != nil {
		w.ending.Do(func() { close(w.closed) })
		w.link.Close()
	}
}

// closeSession is close for a session, which may have been refused something since
// its last run.
func (w *way) closeSession() {
	if w == nil {
		return
	}
	if err := w.settle(w.e.ctx, w.reach(), w.link.Report(true)); err != nil {
		w.e.log.Error("record what a session was refused after its last run", "error", err)
	}
	w.close()
}

// disconnect ends what a run has of the network: of a single run all of it.
func (e *Engine) disconnect(x *execution) {
	switch {
	case x.way == nil:
	case x.room != nil:
		x.way.end()
	default:
		e.work.Go(x.way.close)
	}
}

func (w *way) reach() reach {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *way) told() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.env
}

// Decide says whether a connection may leave, after a person was asked if
// connections are held.
func (w *way) Decide(ctx context.Context, ask egress.Ask) egress.Verdict {
	return w.judge(ctx, w.reach(), ask)
}

func (w *way) judge(ctx context.Context, r reach, ask egress.Ask) egress.Verdict {
	listed := slices.IndexFunc(r.only, func(d sandboxmcp.Domain) bool { return d.Match(ask.Host, ask.Port) })
	switch {
	case r.offline:
		return egress.Verdict{Rule: "offline", Reason: "this run has no network"}
	case r.tells(ask.Host):
		return egress.Verdict{Rule: "vault", Reason: "there is a secret in the name"}
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

// open asks the gate, unless it belongs to a request that has its own list. What
// cannot be read is closed.
func (w *way) open(ctx context.Context, r reach, ask egress.Ask) (string, bool) {
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

// held asks a person and waits for the answer as long as a connection is held.
func (w *way) held(ctx context.Context, r reach, ask egress.Ask) (string, bool) {
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
		if w.reach().who != r.who { // the run is over, and what is opened now is another's
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

// AllowsName reports whether a name gets an address: one that is open at some
// port, or any that can be asked for while connections are held.
func (w *way) AllowsName(h sandboxmcp.Host) bool {
	r := w.reach()
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

// tells reports whether a name holds a secret: whoever looks it up, or is asked to
// open it, would read it.
func (r reach) tells(h sandboxmcp.Host) bool {
	return r.masker != nil && r.masker.Find([]byte(h)) != ""
}

// masked is a report with no secret in it.
func (r reach) masked(n sandboxmcp.Network) sandboxmcp.Network {
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

// refused is where a run was not let go that did not come to a result.
func (x *execution) refused() []sandboxmcp.DeniedRequest {
	if x.network == nil && x.out {
		n := x.reach.masked(x.way.link.Report(true).Network())
		x.network = &n
	}
	if x.network == nil {
		return nil
	}
	return x.network.Denied
}

// environ is what the program of a run is told of the network; nil: it has none.
func (x *execution) environ() map[string]string {
	if x.way == nil || x.reach.offline {
		return nil
	}
	env := maps.Clone(x.way.told())
	if x.room != nil {
		env["SANDBOX_POLICY"] = policyText(x.limits, x.openText())
	}
	return env
}

// cellEnv is what a cell finds in its environment besides what its interpreter
// has: what it is told of the network, over which goes what its caller says.
func (x *execution) cellEnv() map[string]string {
	env := x.environ()
	if env == nil {
		return x.req.Env
	}
	maps.Copy(env, x.req.Env)
	return env
}

// openText lists what is open to a run that has a network.
func (x *execution) openText() []string {
	if x.reach.narrowed || x.reach.granted {
		return texts(x.reach.only)
	}
	return texts(x.reach.open)
}

// openTo lists what is open to a request now.
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

// tellNetwork puts into a result what its run asked of the network, as it was
// seen there.
func (e *Engine) tellNetwork(x *execution, res *sandboxmcp.Result) {
	if x.way != nil {
		res.Network = x.reach.masked(x.way.link.Report(true).Network())
		n := res.Network
		x.network = &n
	}
	if weak := e.proxy.Weak(); len(weak) > 0 && res.Isolation != nil {
		iso := *res.Isolation
		iso.Weak = slices.Concat(iso.Weak, weak)
		res.Isolation = &iso
	}
}

// refusals are the entries of what was refused: one for each destination, of so
// many. They are like another entry.
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
