package api

import (
	"context"
	"math"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// access is a kind of what persons are asked for, with the verbs of the service.
type access struct {
	kind   string // value of kind in answers
	member string // JSON name of its subject
	path   string // of its routes on the unix socket
	of     func(sandboxmcp.Subject) string
	list   func(context.Context, sandboxmcp.Service, sandboxmcp.Caller) (accessList, error)
	decide func(sandboxmcp.Service, context.Context, sandboxmcp.Caller, sandboxmcp.AccessDecision) (sandboxmcp.AccessAnswer, error)
	revoke func(sandboxmcp.Service, context.Context, sandboxmcp.Caller, string) (sandboxmcp.AccessRevoked, error)
}

// The kinds of access.
var (
	egressAccess = access{
		kind: "egress", member: "domain", path: "/v1/egress", of: func(s sandboxmcp.Subject) string { return s.Domain },
		list: listed("egress", sandboxmcp.Service.Egress), decide: sandboxmcp.Service.DecideEgress, revoke: sandboxmcp.Service.RevokeEgress,
	}
	hostAccess = access{
		kind: "host", member: "pattern", path: "/v1/host/access", of: func(s sandboxmcp.Subject) string { return s.Pattern },
		list: listedHost, decide: sandboxmcp.Service.DecideHostAccess, revoke: sandboxmcp.Service.RevokeHostAccess,
	}
	packageAccess = access{
		kind: "package", member: "package", path: "/v1/packages/access", of: func(s sandboxmcp.Subject) string { return s.Package },
		list: listed("package", sandboxmcp.Service.PackageAccess), decide: sandboxmcp.Service.DecidePackage, revoke: sandboxmcp.Service.RevokePackage,
	}
)

// accesses returns every kind.
func accesses() []access { return []access{egressAccess, hostAccess, packageAccess} }

// The routes of access on the unix socket, as part of the table of routes. A decision or
// revocation that has begun is carried out even if the caller disconnects.
var (
	egressRoute        = route[none, sandboxmcp.AccessList]{method: "GET", path: egressAccess.path, do: alone(sandboxmcp.Service.Egress)}
	hostAccessRoute    = route[none, sandboxmcp.HostAccess]{method: "GET", path: hostAccess.path, do: alone(sandboxmcp.Service.HostAccess)}
	packageAccessRoute = route[none, sandboxmcp.AccessList]{method: "GET", path: packageAccess.path, do: alone(sandboxmcp.Service.PackageAccess)}

	decideEgressRoute  = deciding(egressAccess)
	decideHostRoute    = deciding(hostAccess)
	decidePackageRoute = deciding(packageAccess)

	revokeEgressRoute  = revoking(egressAccess)
	revokeHostRoute    = revoking(hostAccess)
	revokePackageRoute = revoking(packageAccess)
)

type subjectIn struct {
	Subject string `query:"subject"`
}

// deciding is the route that answers questions of a kind, or grants access without a question.
func deciding(a access) route[body[sandboxmcp.AccessDecision], sandboxmcp.AccessAnswer] {
	return route[body[sandboxmcp.AccessDecision], sandboxmcp.AccessAnswer]{
		method: "POST", path: a.path + "/decisions", operator: true, finish: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in body[sandboxmcp.AccessDecision]) (sandboxmcp.AccessAnswer, error) {
			if (in.Value.ID == "") == (a.of(in.Value.Subject) == "") {
				return sandboxmcp.AccessAnswer{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "either approval_id or %s must be given", a.member)
			}
			return a.decide(s, ctx, c, in.Value)
		},
	}
}

// revoking is the route that withdraws the access to a subject of a kind.
func revoking(a access) route[subjectIn, sandboxmcp.AccessRevoked] {
	return route[subjectIn, sandboxmcp.AccessRevoked]{
		method: "DELETE", path: a.path, operator: true, finish: true,
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in subjectIn) (sandboxmcp.AccessRevoked, error) {
			return a.revoke(s, ctx, c, in.Subject)
		},
	}
}

// approval is a question to a person, of any kind.
type approval struct {
	Kind string `json:"kind"`
	sandboxmcp.Approval
	Warning string `json:"warning,omitempty"`
}

// grant is an access that a person granted, of any kind.
type grant struct {
	Kind string `json:"kind"`
	sandboxmcp.AccessGrant
}

// accessList has the questions and grants of one kind, or of all.
type accessList struct {
	Pending []approval `json:"pending"`
	Granted []grant    `json:"granted"`
	Total   int        `json:"total" doc:"number of pending questions"`
}

func grantsOf(kind string, all []sandboxmcp.AccessGrant) []grant {
	out := make([]grant, 0, len(all))
	for _, g := range all {
		out = append(out, grant{kind, g})
	}
	return out
}

// listed adapts a method that lists a kind.
func listed(kind string, verb func(sandboxmcp.Service, context.Context, sandboxmcp.Caller) (sandboxmcp.AccessList, error)) func(context.Context, sandboxmcp.Service, sandboxmcp.Caller) (accessList, error) {
	return func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller) (accessList, error) {
		all, err := verb(s, ctx, c)
		out := accessList{Granted: grantsOf(kind, all.Granted)}
		for _, p := range all.Pending {
			out.Pending = append(out.Pending, approval{Kind: kind, Approval: p})
		}
		return out, err
	}
}

func listedHost(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller) (accessList, error) {
	all, err := s.HostAccess(ctx, c)
	out := accessList{Granted: grantsOf("host", all.Approved)}
	for _, p := range all.Pending {
		out.Pending = append(out.Pending, approval{Kind: "host", Approval: p.Approval, Warning: p.Warning})
	}
	return out, err
}

// Inputs of the routes of approvals.
type (
	askIn struct {
		Ask askBody `body:"form"`
	}
	askBody struct {
		Domain      string               `json:"domain,omitempty" doc:"domain to open to programs, such as api.example.com, *.example.com or example.com:8443"`
		Port        int                  `json:"port,omitempty" min:"1" max:"65535" doc:"port of the domain, if the domain names none"`
		Pattern     string               `json:"pattern,omitempty" doc:"command of the host, such as docker ps; a word * stands for one word"`
		Reason      string               `json:"reason,omitempty" doc:"shown to the person who decides"`
		SessionID   sandboxmcp.SessionID `json:"session_id,omitempty" doc:"session that needs the domain"`
		WaitSeconds float64              `json:"wait_seconds,omitempty" min:"0" max:"45" doc:"how long to wait for the answer"`
	}
	approvalIn struct {
		ID string `path:"id" doc:"approval_id of the question"`
	}
	decideIn struct {
		ID       string       `path:"id" doc:"approval_id of the question"`
		Decision decisionBody `body:"form"`
	}
	decisionBody struct {
		Decision   string               `json:"decision" enum:"approve,deny"`
		Scope      string               `json:"scope,omitempty" enum:"once,session,duration,always" doc:"how long the access lasts; default: a day"`
		ForSeconds float64              `json:"for_seconds,omitempty" above:"0" doc:"with scope duration"`
		SessionID  sandboxmcp.SessionID `json:"session_id,omitempty" doc:"with scope session"`
		SHA256     string               `json:"sha256,omitempty" doc:"sha256 of the question that the person saw; the decision fails if it has changed"`
	}
	revokeIn struct {
		Domain  string `query:"domain" doc:"give one of domain, pattern and package"`
		Pattern string `query:"pattern"`
		Package string `query:"package"`
	}
)

// The routes of approvals over HTTP.
var (
	approvalsRoute = route[none, accessList]{
		method: "GET", path: "/approvals", all: true,
		doc: "Lists the questions that wait for a person (domains, commands of the host, packages), and what persons have granted.",
		do: func(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, _ none) (accessList, error) {
			return everyAccess(ctx, s, c)
		},
	}
	approvalRoute = route[approvalIn, approval]{
		method: "GET", path: "/approvals/{id}", all: true,
		doc:   "Shows a question and what became of it: pending, approved, denied or expired.",
		fails: []sandboxmcp.Code{sandboxmcp.CodeRequestNotFound},
		do:    showApproval,
	}
	askRoute = route[askIn, sandboxmcp.AccessAnswer]{
		method: "POST", path: "/approvals", slow: true, example: `{"domain":"api.example.com","reason":"the report needs its rates"}`,
		doc:   "Asks a person to open a domain to programs, or to allow a command of the host. If the same question is asked again, the answer has its state.",
		fails: []sandboxmcp.Code{sandboxmcp.CodeBlockedAddress, sandboxmcp.CodeHostAccessDisabled, sandboxmcp.CodeHostAccessBlocked, sandboxmcp.CodeQueueFull},
		do:    ask,
	}
	decideRoute = route[decideIn, sandboxmcp.AccessAnswer]{
		method: "POST", path: "/approvals/{id}", operator: true, all: true, finish: true, example: `{"decision":"approve","scope":"once"}`,
		doc:   "Answers a pending question. A key that runs code cannot answer the questions of its own runs.",
		fails: []sandboxmcp.Code{sandboxmcp.CodeRequestNotFound, sandboxmcp.CodeSessionNotFound},
		do:    decide,
	}
	revokeRoute = route[revokeIn, sandboxmcp.AccessRevoked]{
		method: "DELETE", path: "/approvals", operator: true, finish: true, example: "domain=api.example.com",
		doc:   "Withdraws what persons have granted for a domain, a command of the host or a package, in the namespace of the key or of X-Tenant-Id.",
		fails: []sandboxmcp.Code{sandboxmcp.CodeRequestNotFound},
		do:    revoke,
	}
)

// everyAccess lists questions and grants of all kinds.
func everyAccess(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller) (accessList, error) {
	var out accessList
	for _, a := range accesses() {
		some, err := a.list(ctx, s, c)
		if err != nil {
			return accessList{}, err
		}
		out.Pending, out.Granted = append(out.Pending, some.Pending...), append(out.Granted, some.Granted...)
	}
	out.Total = len(out.Pending)
	return out, nil
}

// showApproval returns a question with its kind and, while it waits, its warning.
func showApproval(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in approvalIn) (approval, error) {
	found, err := s.FindApproval(ctx, c, in.ID)
	if err != nil {
		return approval{}, err
	}
	for _, a := range accesses() {
		if a.of(found.Subject) == "" {
			continue
		}
		some, err := a.list(ctx, s, c)
		if err != nil {
			return approval{}, err
		}
		for _, p := range some.Pending {
			if p.ID == in.ID {
				return p, nil
			}
		}
		return approval{Kind: a.kind, Approval: found}, nil
	}
	return approval{}, sandboxmcp.Errorf(sandboxmcp.CodeInternal, "approval %s has no subject", sandboxmcp.Quote(in.ID))
}

func ask(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in askIn) (sandboxmcp.AccessAnswer, error) {
	q := in.Ask
	wait := seconds(q.WaitSeconds)
	switch {
	case (q.Domain == "") == (q.Pattern == ""):
		return sandboxmcp.AccessAnswer{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "either domain or pattern must be given").
			WithHint("packages are asked for by installing them")
	case q.Pattern != "":
		if q.Port != 0 || q.SessionID != "" {
			return sandboxmcp.AccessAnswer{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "port and session_id belong to a domain, and pattern is given")
		}
		return s.RequestHostAccess(ctx, c, sandboxmcp.HostAsk{Pattern: q.Pattern, Reason: q.Reason, Wait: wait})
	}
	return s.RequestEgress(ctx, c, sandboxmcp.EgressAsk{Domain: q.Domain, Port: q.Port, Reason: q.Reason, SessionID: q.SessionID, Wait: wait})
}

// decide finds the kind of a question and carries out the person's answer.
func decide(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in decideIn) (sandboxmcp.AccessAnswer, error) {
	d := sandboxmcp.AccessDecision{
		ID: in.ID, SHA256: in.Decision.SHA256, Deny: in.Decision.Decision == "deny",
		Scope: sandboxmcp.GrantScope(in.Decision.Scope), For: seconds(in.Decision.ForSeconds), SessionID: in.Decision.SessionID,
	}
	for _, a := range accesses() {
		some, err := a.list(ctx, s, c)
		if err != nil {
			return sandboxmcp.AccessAnswer{}, err
		}
		for _, p := range some.Pending {
			if p.ID == in.ID {
				return a.decide(s, ctx, c, d)
			}
		}
	}
	return sandboxmcp.AccessAnswer{}, sandboxmcp.Errorf(sandboxmcp.CodeRequestNotFound, "no question %s is waiting for an answer", sandboxmcp.Quote(in.ID)).
		WithHint("it may have been answered, or have expired; GET /approvals lists those that wait")
}

func revoke(ctx context.Context, s sandboxmcp.Service, c sandboxmcp.Caller, in revokeIn) (sandboxmcp.AccessRevoked, error) {
	subject := sandboxmcp.Subject{Domain: in.Domain, Pattern: in.Pattern, Package: in.Package}
	var named []access
	for _, a := range accesses() {
		if a.of(subject) != "" {
			named = append(named, a)
		}
	}
	if len(named) != 1 {
		return sandboxmcp.AccessRevoked{}, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "one of domain, pattern and package must be given")
	}
	return named[0].revoke(s, ctx, c, named[0].of(subject))
}

// seconds converts a number of a body. A positive number becomes at least a millisecond, because
// 0 means the default. A number that a duration cannot hold becomes the longest one, 292 years.
func seconds(n float64) time.Duration {
	switch {
	case n <= 0:
		return 0
	case n >= time.Duration(math.MaxInt64).Seconds():
		return math.MaxInt64
	}
	return max(time.Duration(n*float64(time.Second)), time.Millisecond)
}
