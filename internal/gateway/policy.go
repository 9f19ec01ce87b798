package gateway

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/gate"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
)

// Request is what a run and its session say about the network.
type Request struct {
	Caller    sandboxmcp.Caller
	ID        sandboxmcp.RequestID
	SessionID sandboxmcp.SessionID // empty: a single run
	Born      time.Time            // when the session was made; grants for an earlier session of the same id do not apply
	Backend   string               // its name
	Offline   bool                 // the run, or its session, has no network
	Reader    sandboxmcp.Reader    // who reads what the program prints
	Asks      bool                 // the reader can ask for a domain with the tool request_egress

	Domains []string      // the allowed_domains of the run; nil: it sets none
	Grant   bool          // the caller may open Domains for the run
	Hold    time.Duration // overrides Config.Hold; 0: Config.Hold
	Names   Secrets       // finds secrets of the namespace in Domains
}

func (r *Request) who() gate.Who {
	return gate.Who{Namespace: r.Caller.Namespace, SessionID: r.SessionID, Born: r.Born, RequestID: r.ID}
}

// policy says which hosts a run may reach.
type policy struct {
	who      gate.Who // Apart is not set: the rules may change; see Egress.who
	backend  string
	narrowed bool                // allow only domains that are in only and also open
	granted  bool                // allow every domain in only: the caller may open domains
	only     []sandboxmcp.Domain // allowed_domains of the request; for narrowed and granted
	offline  bool                // no host at all
	wanted   bool                // a network is needed: a domain is open or may be opened, or attempts are counted
	own      bool                // ignore the domains open to the namespace: the request has its own list, and no person is asked
	hold     time.Duration
	asks     bool                // see Request
	ports    []int               // ports of open domains besides 80 and 443; the sandbox listens on them
	beyond   int                 // how many more such ports there are
	open     []sandboxmcp.Domain // open domains when the run began
	actor    string
	masker   *redact.Masker // finds secrets in host names; nil: there are none
	secrets  Secrets        // finds secrets in names that a person is asked about
}

// NewRun decides which hosts a run may reach. If the request names a domain that the run may not
// reach, it fails.
func (e *Egress) NewRun(ctx context.Context, r Request) (*Run, error) {
	p, err := e.policyOf(ctx, &r)
	if err != nil {
		return nil, err
	}
	return &Run{e: e, backend: r.Backend, policy: p}, nil
}

func (e *Egress) policyOf(ctx context.Context, r *Request) (policy, error) {
	p := policy{who: r.who(), backend: r.Backend, actor: r.Caller.Actor, asks: r.Asks}
	if p.offline = r.Offline; p.offline {
		if len(r.Domains) > 0 {
			return p, sandboxmcp.Errorf(sandboxmcp.CodeEgressDenied, "this session has no network, even to open domains").
				WithHint("use another session: those of the sandbox_* tools may have no network")
		}
		return p, nil
	}
	open, err := e.gate.Open(ctx, e.who(p))
	if err != nil {
		return p, err
	}
	if r.Domains != nil {
		if open, err = e.allowList(ctx, r, &p, open); err != nil {
			return p, err
		}
	}
	rules := e.rules.Load()
	if p.hold = rules.Hold; r.Hold > 0 {
		p.hold = r.Hold
	}
	if rules.NoAsking {
		if p.hold = 0; r.Hold > 0 {
			return p, gate.Off()
		}
	}
	p.own = p.granted && p.hold == 0
	p.open = open
	p.listen()
	p.wanted = len(open) > 0 || rules.opens(p.backend) || p.hold > 0
	return p, nil
}

// maxListeners bounds the extra ports that a sandbox listens on. Persons open domains one at a
// time. Without a bound, too many of them would make the whole network fail.
const maxListeners = 24

// listen chooses the ports to listen on, up to maxListeners. Other ports can be reached only
// through the proxy. The sandbox's own DNS and proxy use port 53 and the proxy's port.
func (p *policy) listen() {
	seen := map[int]bool{0: true, 80: true, 443: true} // ports that always have a listener
	for _, d := range p.open {
		switch {
		case seen[d.Port]:
		case d.Port == 53 || d.Port == backend.ProxyPort || len(p.ports) == maxListeners:
			p.beyond++
		default:
			p.ports = append(p.ports, d.Port)
		}
		seen[d.Port] = true
	}
}

// allowList checks the domains that a request names. A caller that may not open domains
// can only choose among open ones.
func (e *Egress) allowList(ctx context.Context, r *Request, p *policy, open []sandboxmcp.Domain) ([]sandboxmcp.Domain, error) {
	if len(r.Domains) > maxAllowList {
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "allowed_domains has %d entries; at most %d are allowed", len(r.Domains), maxAllowList)
	}
	p.granted, p.narrowed = r.Grant, !r.Grant
	p.only = []sandboxmcp.Domain{}
	for _, text := range r.Domains {
		d, err := gate.ParseDomain(text, 0)
		switch {
		case err != nil && p.narrowed && strings.HasPrefix(text, "*"): // such as * or *.com, which are never open
			return nil, e.notOpen(r, sandboxmcp.Quote(text), "")
		case err != nil:
			return nil, err
		case gate.Covered(open, d):
			if err := plainDomain(ctx, r, open, d); err != nil {
				return nil, err
			}
		case p.narrowed:
			return nil, e.notOpen(r, d.String(), d.String()).With("domain", d.String())
		case e.rules.Load().NoAsking:
			return nil, gate.Off()
		}
		p.only = append(p.only, d)
	}
	return p.only, nil
}

const maxAllowList = 256

// plainDomain refuses a name below an open wildcard if it contains a secret. The caller
// chose that name, and the audit log shows it.
func plainDomain(ctx context.Context, r *Request, open []sandboxmcp.Domain, d sandboxmcp.Domain) error {
	if r.Grant || slices.Contains(open, d) {
		return nil
	}
	masks, err := r.Names.Masks(ctx)
	if err != nil {
		return err
	}
	return masks.Plain("a domain of allowed_domains", d.String())
}

// notOpen returns the error for a name in allowed_domains that is not open. Its hint says how d is
// opened; empty: it cannot be.
func (e *Egress) notOpen(r *Request, name, d string) *sandboxmcp.Error {
	err := sandboxmcp.Errorf(sandboxmcp.CodeEgressDenied, "%s is not open; allowed_domains can only choose among open domains", name)
	switch way := e.recourse(r.Asks); {
	case way == egress.BySettings:
		return err.WithHint("choose among the domains that the operator's settings open")
	case way == egress.ByTool:
		return err.WithHint("ask a person for it with request_egress, then run again")
	case r.Reader == sandboxmcp.ReaderREST:
		return err.WithHint("ask for it by POST /approvals; once an operator has approved it by POST /approvals/{id}, run again")
	case d == "":
		return err.WithHint("name a domain that is open")
	}
	return err.WithHint("a person opens it with `sandboxmcp egress " + sandboxmcp.ShellQuote(d) + "`; then run again")
}

// recourse says how a closed domain can be opened. asks: the caller has the tool request_egress.
func (e *Egress) recourse(asks bool) egress.Recourse {
	switch {
	case e.rules.Load().NoAsking:
		return egress.BySettings
	case asks:
		return egress.ByTool
	}
	return egress.ByPerson
}

// Describe adds the allowed_domains of a run to its intent.
func (r *Run) Describe(entry *sandboxmcp.AuditEntry) {
	if r.policy.narrowed || r.policy.granted {
		entry.Metadata["allowed_domains"] = texts(r.policy.only)
	}
}

// Openings returns the audit entry for the domains that the caller opens for its run, or nil if
// there are none. like is an entry of the run to copy.
func (r *Run) Openings(like sandboxmcp.AuditEntry) *sandboxmcp.AuditEntry {
	if !r.policy.granted || len(r.policy.only) == 0 {
		return nil
	}
	like.Action, like.Phase = "egress_approved", sandboxmcp.PhaseOutcome
	like.Detail = strconv.Itoa(len(r.policy.only)) + " domains for one run"
	like.Metadata = map[string]any{"domains": texts(r.policy.only), "scope": sandboxmcp.GrantOnce}
	return &like
}

func texts(domains []sandboxmcp.Domain) []string {
	list := make([]string, 0, len(domains))
	for _, d := range domains {
		list = append(list, d.String())
	}
	return list
}

// tells reports whether a name contains a secret. DNS servers and the person who is asked would
// read it.
func (p policy) tells(h sandboxmcp.Host) bool {
	return p.masker != nil && p.masker.Find([]byte(h)) != ""
}

// masked returns n with secrets masked.
func (p policy) masked(n sandboxmcp.Network) sandboxmcp.Network {
	if p.masker == nil {
		return n
	}
	for i, text := range n.Allowed {
		n.Allowed[i] = p.masker.Text(text)
	}
	for _, list := range [][]sandboxmcp.DeniedRequest{n.Denied, n.Failed} {
		for i, d := range list {
			list[i].Host, list[i].Reason = p.masker.Text(d.Host), p.masker.Text(d.Reason)
		}
	}
	return n
}

// OpenTo lists the domains that are open to a request now.
func (e *Egress) OpenTo(ctx context.Context, r Request) []string {
	if r.Offline {
		return []string{}
	}
	open, err := e.gate.Open(ctx, e.who(policy{who: r.who(), backend: r.Backend}))
	if err != nil {
		return []string{}
	}
	return texts(open)
}
