package gateway

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

// Gateway is the network of a sandbox. It implements the policy of its link and asks the
// gate at each connection. Its methods may be called concurrently.
type Gateway struct {
	e    *Egress
	net  backend.Networker
	link *egress.Link

	closed chan struct{}
	ending sync.Once

	mu    sync.Mutex
	env   map[string]string // environment variables that describe the network
	ports []int
	at    policy // policy of the current run, or of a session between two runs
}

// extend opens the network, or adds the missing listeners for ports. beyond is how many ports got
// no listener.
func (w *Gateway) extend(ctx context.Context, ports []int) (beyond int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	missing := slices.DeleteFunc(slices.Clone(ports), func(p int) bool { return slices.Contains(w.ports, p) })
	if free := maxListeners - len(w.ports); len(missing) > free { // earlier runs of the session took some
		beyond = len(missing) - free
		missing = missing[:free]
	}
	if w.link != nil && len(missing) == 0 {
		return beyond, nil
	}
	n, err := w.net.Network(ctx, missing)
	if err != nil {
		return beyond, err
	}
	w.ports = append(w.ports, missing...)
	w.env = map[string]string{}
	for _, kv := range n.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		w.env[k] = v
	}
	if w.link == nil {
		w.link, w.closed = w.e.proxy.Attach(n, w), make(chan struct{}) //nolint:contextcheck // the link lives until Close
		w.e.work.Go(w.watch)
		return beyond, nil
	}
	w.link.Serve(n) //nolint:contextcheck // as above
	return beyond, nil
}

// settle writes audit entries for what was refused to a session between two runs.
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
	return w.e.cfg.Store.Update(context.WithoutCancel(ctx), ops...)
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

// set changes the policy and returns the previous one.
func (w *Gateway) set(change func(policy) policy) (before policy) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.at
	w.at = change(before)
	return before
}

// review closes connections that the policy does not allow. Processes of earlier runs may still
// have some.
func (w *Gateway) review() { w.link.Review(w.holds) }

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
			w.link.Cut(w.holds)
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
	if w != nil {
		w.ending.Do(func() { close(w.closed) })
		w.link.Close()
	}
}

// CloseSession is Close for a session. Before that it records what was refused since the last run.
func (w *Gateway) CloseSession() {
	if w == nil {
		return
	}
	if err := w.settle(w.e.ctx, w.policy(), w.link.Report(true)); err != nil {
		w.e.cfg.Logger.Error("record what a session was refused after its last run", "error", err)
	}
	w.Close()
}

func (w *Gateway) policy() policy {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *Gateway) environ() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.env
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
		return egress.Verdict{Rule: "offline", Reason: "this run has no network"}
	case p.tells(ask.Host):
		return egress.Verdict{Rule: "vault", Reason: "the name contains a secret"}
	case p.granted && listed >= 0:
		return egress.Verdict{Allowed: true, Rule: p.only[listed].String()}
	case p.narrowed && listed < 0:
		return egress.Verdict{Rule: "allowed_domains", Reason: "it is not among the allowed_domains of this run"}
	}
	rule, ok := w.open(ctx, p, ask)
	if !ok && p.hold > 0 {
		rule, ok = w.held(ctx, p, ask)
	}
	if ok {
		return egress.Verdict{Allowed: true, Rule: rule}
	}
	return egress.Verdict{Reason: "nobody has opened it"}
}

// open asks the gate, unless the run has its own list. On error it reports the domain as closed.
func (w *Gateway) open(ctx context.Context, p policy, ask egress.Ask) (string, bool) {
	if p.own {
		return "", false
	}
	rule, ok, err := w.e.gate.Allows(ctx, p.who, ask.Host, ask.Port)
	if err != nil {
		w.e.cfg.Logger.Error("look up what is open", "error", err)
		return "", false
	}
	return rule, ok
}

// held asks a person and waits up to p.hold for the answer.
func (w *Gateway) held(ctx context.Context, p policy, ask egress.Ask) (string, bool) {
	masks, err := p.secrets.Masks(ctx)
	if err != nil {
		return "", false
	}
	a, err := w.e.ask(ctx, masks, sandboxmcp.Caller{Namespace: p.who.Namespace, Actor: p.actor}, sandboxmcp.EgressAsk{
		Domain: string(ask.Host), Port: ask.Port, SessionID: p.who.SessionID, RequestID: p.who.RequestID,
	})
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

// AllowsName reports whether a name may be resolved. It may if it is open at any port, or if
// connections are held and the name is one that a person can open.
func (w *Gateway) AllowsName(h sandboxmcp.Host) bool {
	p := w.policy()
	in := func(list []sandboxmcp.Domain) bool {
		return slices.ContainsFunc(list, func(d sandboxmcp.Domain) bool { return d.MatchHost(h) })
	}
	switch {
	case p.offline, p.tells(h):
		return false
	case p.narrowed && !in(p.only):
		return false
	case p.granted && in(p.only):
		return true
	case p.hold > 0:
		_, err := sandboxmcp.ParseDomain(string(h))
		return err == nil
	case p.granted:
		return false
	}
	open, err := w.e.gate.Open(w.e.ctx, p.who)
	return err == nil && in(open)
}
