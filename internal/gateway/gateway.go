package gateway

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Gateway is the network of a sandbox. It implements the policy of its link and asks the
// gate at each connection. Its methods may be called concurrently.
//
// While no host is open, a gateway has no link. It gets one before a program makes its first
// network socket, and the link refuses every connection and says what was tried. It gets what
// leads out, such as a proxy, once a host is open.
type Gateway struct {
	e       *Egress
	net     backend.Networker
	changed func() // called after the walls of the sandbox have changed

	closed chan struct{}
	ending sync.Once

	opening sync.Mutex // held while sockets are made

	mu      sync.Mutex
	link    *egress.Link      // nil: no socket has been made
	over    bool              // Close was called
	leadOut bool              // connections may lead out of the sandbox
	hears   bool              // the sandbox reports attempts to reach addresses
	env     map[string]string // environment variables that describe the network; nil: it does not lead out
	ports   []int
	at      policy    // policy of the current run, or of a session between two runs
	opened  []Opened  // what the current run used that was not open when it began
	failure error     // why attempts are not told; nil: they are
	deafAt  time.Time // when listenFor failed last
}

// newGateway returns the gateway of a sandbox. It opens nothing.
func (e *Egress) newGateway(net backend.Networker, changed func()) *Gateway {
	return &Gateway{e: e, net: net, changed: changed, closed: make(chan struct{}), at: policy{offline: true}} // processes left by earlier runs had no network
}

// await makes the link before a program makes its first network socket, or now if the sandbox does
// not report that.
func (w *Gateway) await() {
	if !w.net.BeforeSockets(w.refuse) {
		w.refuse()
	}
}

// refuse makes the link of a sandbox for which no host is open. If that fails, programs reach
// nothing, as with it, but what they try is not reported.
func (w *Gateway) refuse() {
	w.opening.Lock()
	defer w.opening.Unlock()
	if w.current() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.e.ctx), refuseLimit)
	defer cancel()
	n, err := w.net.Refuse(ctx)
	if err != nil {
		w.mu.Lock()
		w.failure = err
		w.mu.Unlock()
		return
	}
	w.serve(n)
	w.changed()
}

// refuseLimit bounds how long a program waits for its first network socket.
const refuseLimit = 5 * time.Second

// serve has the link serve the sockets of n. It makes the link if there is none.
func (w *Gateway) serve(n *backend.Network) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hears = n.Refused != nil
	switch {
	case w.over, w.e.ctx.Err() != nil:
		_ = n.Close() // the sandbox is being closed, which closes them as well
	case w.link != nil:
		w.link.Serve(n)
	default:
		w.link = w.e.proxy.Attach(n, w) // it lives until Close
		w.e.work.Go(w.watch)
	}
}

// current returns the link, or nil if there is none.
func (w *Gateway) current() *egress.Link {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link
}

// extend opens the network, or adds the missing listeners for ports. beyond is how many ports got
// no listener.
func (w *Gateway) extend(ctx context.Context, ports []int) (beyond int, err error) {
	w.opening.Lock()
	defer w.opening.Unlock()
	missing := slices.DeleteFunc(slices.Clone(ports), func(p int) bool { return slices.Contains(w.ports, p) })
	if free := maxListeners - len(w.ports); len(missing) > free { // earlier runs of the session took some
		beyond = len(missing) - free
		missing = missing[:free]
	}
	if w.leadsOut() && len(missing) == 0 {
		return beyond, nil
	}
	n, err := w.net.Network(ctx, missing)
	w.changed() // also if it failed
	if err != nil {
		return beyond, err
	}
	env := map[string]string{}
	for _, kv := range n.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	w.serve(n) //nolint:contextcheck // the link lives until Close
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ports, w.env, w.leadOut = append(w.ports, missing...), env, true
	return beyond, nil
}

// wall returns the wall that the gateway has made; "" if it has made none.
func (w *Gateway) wall() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.leadOut:
		return sandboxmcp.WallEgress
	case w.link == nil:
		return ""
	case w.hears:
		return sandboxmcp.WallTold
	}
	return sandboxmcp.WallToldNames
}

func (w *Gateway) leadsOut() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.leadOut
}

// settle records what was refused to a session between two runs, and emits events of it.
func (w *Gateway) settle(ctx context.Context, at policy, left egress.Report) error {
	denied := at.masked(left.Network()).Denied
	if len(denied) == 0 || at.who.SessionID == "" {
		return nil
	}
	var ops []store.Op
	for _, entry := range Refusals(denied, sandboxmcp.AuditEntry{Namespace: at.who.Namespace, SessionID: at.who.SessionID, Actor: at.actor}) {
		entry.Metadata["between_runs"] = true
		ops = append(ops, w.e.cfg.Audit.Op(entry))
	}
	if err := w.e.cfg.Store.Update(context.WithoutCancel(ctx), ops...); err != nil {
		return err
	}
	w.e.cfg.Events.Emit(event.Run{SessionID: at.who.SessionID, Namespace: at.who.Namespace}.Refused(denied)...)
	return nil
}

// end deactivates the run's policy for new connections of the run. Processes that the run left
// behind keep its restrictions. If the caller opened domains only for the run, such processes lose
// the network.
func (w *Gateway) end() {
	w.set(func(p policy) policy {
		p.who.RequestID, p.hold = "", 0
		p.offline = p.offline || p.granted
		return p
	})
	w.review()
}

// set changes the policy.
func (w *Gateway) set(change func(policy) policy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = change(w.at)
}

// review closes connections that the policy does not allow. Processes of earlier runs may still
// have some.
func (w *Gateway) review() {
	if link := w.current(); link != nil {
		link.Review(w.holds)
	}
}

// holds reports whether an existing connection may stay.
func (w *Gateway) holds(ask egress.Ask) bool {
	p := w.policy()
	p.hold = 0 // do not ask a person about an existing connection
	return w.judge(context.WithoutCancel(w.e.ctx), p, ask).Allowed
}

// watch closes connections to domains that were closed, or whose grant has expired.
func (w *Gateway) watch() {
	t := time.NewTicker(reviewEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			w.current().Cut(w.holds)
		case <-w.closed:
			return
		case <-w.e.ctx.Done(): // the server waits for this goroutine before it closes sessions
			return
		}
	}
}

const reviewEvery = 500 * time.Millisecond

// Close closes the network and all connections. It may be called on nil, and more than once.
func (w *Gateway) Close() {
	if w == nil {
		return
	}
	w.ending.Do(func() { close(w.closed) })
	w.mu.Lock()
	w.over = true
	link := w.link
	w.mu.Unlock()
	if link != nil {
		link.Close()
	}
}

// CloseSession is Close for a session. Before that it records what was refused since the last run.
func (w *Gateway) CloseSession() {
	if w == nil {
		return
	}
	if link := w.current(); link != nil {
		if err := w.settle(w.e.ctx, w.policy(), link.Report(true)); err != nil {
			w.e.cfg.Logger.Error("record what a session was refused after its last run", "error", err)
		}
	}
	w.Close()
}

func (w *Gateway) policy() policy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// environ returns a copy of the variables that describe the network; nil if it does not lead out.
func (w *Gateway) environ() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.env)
}

// failed returns why attempts are not told; nil: they are.
func (w *Gateway) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failure
}

// begin puts the policy of a run into force and returns the previous one.
func (w *Gateway) begin(p policy) (before policy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.at
	w.at, w.opened = p, nil
	return before
}

// use notes that a run has connected by a domain that was not open when it began.
func (w *Gateway) use(p policy, rule string) {
	if slices.ContainsFunc(p.open, func(d sandboxmcp.Domain) bool { return d.String() == rule }) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := slices.ContainsFunc(w.opened, func(o Opened) bool { return o.Domain == rule })
	if !known && len(w.opened) < maxOpened && p.who == w.at.who {
		w.opened = append(w.opened, Opened{rule, w.e.cfg.Now().UTC()})
	}
}

// maxOpened bounds the domains of one run that are listed as opened meanwhile.
const maxOpened = 32

func (w *Gateway) openedSince() []Opened {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opened
}

// Decide says whether a connection is allowed. If the policy holds connections, it asks a person
// and waits for the answer.
func (w *Gateway) Decide(ctx context.Context, ask egress.Ask) egress.Verdict {
	return w.judge(ctx, w.policy(), ask)
}

func (w *Gateway) judge(ctx context.Context, p policy, ask egress.Ask) egress.Verdict {
	listed := slices.IndexFunc(p.only, func(d sandboxmcp.Domain) bool { return d.Match(ask.Host, ask.Port) })
	switch {
	case p.offline:
		return offlineVerdict
	case p.tells(ask.Host):
		return secretVerdict
	case p.granted && listed >= 0:
		return egress.Verdict{Allowed: true, Rule: p.only[listed].String()}
	case p.narrowed && listed < 0:
		return notListed
	}
	rule, ok := w.open(ctx, p, ask)
	if !ok && p.hold > 0 {
		rule, ok = w.held(ctx, p, ask)
	}
	if !ok {
		return w.refusal(ctx, p, ask.Host, ask.Port)
	}
	if !w.leadsOut() { // the domain was opened after the run began
		if _, err := w.extend(ctx, nil); err != nil {
			return egress.Verdict{Rule: "network", Reason: sandboxmcp.AsError(err).Message}
		}
	}
	w.use(p, rule)
	return egress.Verdict{Allowed: true, Rule: rule}
}

// refusal is the verdict on a host that is not open. Port 0 means any.
func (w *Gateway) refusal(ctx context.Context, p policy, h sandboxmcp.Host, port int) egress.Verdict {
	denied := func(d sandboxmcp.Domain) bool { return d.Match(h, port) || port == 0 && d.MatchHost(h) }
	if w.e.gate.Denied(ctx, p.who.Namespace, denied) {
		return egress.Verdict{Rule: "denied", Reason: "a person denied it", Denial: sandboxmcp.DenialPerson}
	}
	return w.notOpened(p)
}

// notOpened is the verdict on a host that nobody has opened or denied.
func (w *Gateway) notOpened(p policy) egress.Verdict {
	return egress.Verdict{Reason: "nobody has opened it", Denial: sandboxmcp.DenialClosed, Recourse: w.e.recourse(p.asks)}
}

// Closed reports whether no host can be reached, and the verdict on each if so. Once the network
// leads out, each connection is judged on its own.
func (w *Gateway) Closed() (egress.Verdict, bool) {
	p := w.policy()
	switch {
	case w.leadsOut():
		return egress.Verdict{}, false
	case p.offline:
		return offlineVerdict, true
	case p.hold > 0, len(p.only) > 0:
		return egress.Verdict{}, false
	case p.narrowed, p.granted:
		return notListed, true
	}
	if open, err := w.e.gate.Open(w.e.ctx, w.e.who(p)); err == nil && len(open) > 0 {
		return egress.Verdict{}, false
	}
	return w.notOpened(p), true
}

var (
	offlineVerdict = egress.Verdict{Rule: "offline", Reason: "this run has no network"}
	secretVerdict  = egress.Verdict{Rule: "vault", Reason: "the name contains a secret"}
	notListed      = egress.Verdict{Rule: "allowed_domains", Reason: "it is not among the allowed_domains of this run", Denial: sandboxmcp.DenialUnlisted}
)

// open asks the gate, unless the run has its own list. On error it reports the domain as closed.
func (w *Gateway) open(ctx context.Context, p policy, ask egress.Ask) (string, bool) {
	if p.own {
		return "", false
	}
	rule, ok, err := w.e.gate.Allows(ctx, w.e.who(p), func(d sandboxmcp.Domain) bool { return d.Match(ask.Host, ask.Port) })
	if err != nil {
		w.e.cfg.Logger.Error("look up what is open", "error", err)
		return "", false
	}
	return rule.String(), ok
}

// held asks a person and waits up to p.hold for the answer.
func (w *Gateway) held(ctx context.Context, p policy, ask egress.Ask) (string, bool) {
	masks, err := p.secrets.Masks(ctx)
	if err != nil {
		return "", false
	}
	d, err := gate.ParseDomain(string(ask.Host), ask.Port)
	if err != nil {
		return "", false
	}
	who := sandboxmcp.Caller{Namespace: p.who.Namespace, Actor: p.actor}
	a, err := w.e.gate.RequestMasked(ctx, masks, who, d, gate.Ask{SessionID: p.who.SessionID, RequestID: p.who.RequestID})
	if err != nil || a.Status == sandboxmcp.ApprovalDenied {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, p.hold)
	defer cancel()
	rule, ok := "", false
	open := func() bool {
		if w.policy().who != p.who { // the run has ended: the policy is now that of another run
			return false
		}
		rule, ok = w.open(ctx, p, ask)
		return ok
	}
	if _, err := w.e.gate.Wait(ctx, a.ID, open); err != nil {
		return "", false
	}
	return rule, ok || open()
}

// Name decides whether a name may be resolved. It may if it is open at any port, or if
// connections are held and the name is one that a person can open.
func (w *Gateway) Name(h sandboxmcp.Host) egress.Verdict {
	p := w.policy()
	in := func(list []sandboxmcp.Domain) bool {
		return slices.ContainsFunc(list, func(d sandboxmcp.Domain) bool { return d.MatchHost(h) })
	}
	allowed := egress.Verdict{Allowed: true}
	switch {
	case p.offline:
		return offlineVerdict
	case p.tells(h):
		return secretVerdict
	case p.narrowed && !in(p.only):
		return notListed
	case p.granted && in(p.only):
		return allowed
	case p.hold > 0:
		if _, err := sandboxmcp.ParseDomain(string(h)); err == nil {
			return allowed
		}
		return w.refusal(w.e.ctx, p, h, 0)
	case p.granted:
		return notListed
	}
	open, err := w.e.gate.Open(w.e.ctx, w.e.who(p))
	if err != nil || !in(open) {
		return w.refusal(w.e.ctx, p, h, 0)
	}
	w.listenFor(h, open)
	return allowed
}

// listenFor adds listeners for the ports at which a name is open, if it was opened after the run
// began. Ports for which that fails are refused by the kernel. Then listenFor rests: a program that
// has taken such a port itself can ask for the name as often as it likes.
func (w *Gateway) listenFor(h sandboxmcp.Host, open []sandboxmcp.Domain) {
	p := policy{open: slices.DeleteFunc(open, func(d sandboxmcp.Domain) bool { return !d.MatchHost(h) })}
	if p.listen(); len(p.ports) == 0 && w.leadsOut() || w.restsToListen() {
		return
	}
	if _, err := w.extend(w.e.ctx, p.ports); err != nil {
		w.mu.Lock()
		w.deafAt = w.e.cfg.Now()
		w.mu.Unlock()
		w.e.cfg.Logger.Warn("listen for a domain that was opened during a run", "domain", h, "error", err)
	}
}

// restsToListen reports whether listenFor has failed within listenAgain.
func (w *Gateway) restsToListen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.e.cfg.Now().Sub(w.deafAt) < listenAgain
}

const listenAgain = time.Second
