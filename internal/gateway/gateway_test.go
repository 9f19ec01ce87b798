package gateway_test

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/audit"
	"github.com/sandboxmcp/sandboxmcp/internal/egress"
	"github.com/sandboxmcp/sandboxmcp/internal/event"
	"github.com/sandboxmcp/sandboxmcp/internal/gateway"
	"github.com/sandboxmcp/sandboxmcp/internal/redact"
	"github.com/sandboxmcp/sandboxmcp/internal/store"
)

var caller = sandboxmcp.Caller{Namespace: "default", Actor: "tester"}

// secrets is a gateway.Secrets.
type secrets struct{ m *redact.Masker }

func (s secrets) Masks(context.Context) (*redact.Masker, error) { return s.m, nil }

// sandbox is one with a network that has no sockets.
type sandbox struct {
	backend.Sandbox

	ports   [][]int // of each call of Network
	refuses int     // number of calls of Refuse
	before  func()  // of BeforeSockets
	deaf    bool    // BeforeSockets returns false, and what is refused is not known
	fails   bool    // no socket can be made
	failed  int     // number of calls of Network that have failed
}

func (s *sandbox) Network(_ context.Context, ports []int) (*backend.Network, error) {
	if s.fails {
		s.failed++
		return nil, errNoSockets
	}
	s.ports = append(s.ports, ports)
	return &backend.Network{}, nil
}

var errNoSockets = sandboxmcp.Errorf(sandboxmcp.CodeBackendUnavailable, "no sockets")

func (s *sandbox) Refuse(context.Context) (*backend.Network, error) {
	if s.fails {
		return nil, errNoSockets
	}
	s.refuses++
	n := &backend.Network{}
	if !s.deaf {
		n.Refused = func() ([]backend.Refusal, int) { return nil, 0 }
	}
	return n, nil
}

func (s *sandbox) BeforeSockets(f func()) bool {
	s.before = f
	return !s.deaf
}

// open returns the egress of a server, which has opened the domains.
func open(t *testing.T, opened []string, change ...func(*gateway.Config)) *gateway.Egress {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{Dir: filepath.Join(t.TempDir(), "state")})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(context.WithoutCancel(t.Context()), s, audit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := gateway.Config{Store: s, Audit: log, Key: func(purpose string) ([]byte, error) { return []byte(purpose), nil }, Events: event.New(nil), Rules: gateway.Rules{Network: true}}
	for _, text := range opened {
		d, err := sandboxmcp.ParseDomain(text)
		if err != nil {
			t.Fatal(err)
		}
		c.Operator = append(c.Operator, d)
	}
	for _, f := range change {
		f(&c)
	}
	e := gateway.New(ctx, c)
	t.Cleanup(func() {
		cancel()
		e.Wait()
		log.Close(context.WithoutCancel(ctx))
		_ = s.Close()
	})
	return e
}

// begin makes a run and connects its sandbox. Its policy is not in force yet.
func begin(t *testing.T, e *gateway.Egress, sb *sandbox, have *gateway.Gateway, r gateway.Request) *gateway.Run {
	t.Helper()
	r.Caller, r.Names = caller, secrets{}
	run, err := e.NewRun(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err = run.Connect(t.Context(), sb, have, func() {}); err != nil {
		t.Fatal(err)
	}
	if have == nil && run.Gateway() != nil {
		t.Cleanup(run.Gateway().Close)
	}
	return run
}

func letOut(t *testing.T, r *gateway.Run, m *redact.Masker) {
	t.Helper()
	if err := r.LetOut(t.Context(), m, secrets{m}); err != nil {
		t.Fatal(err)
	}
}

// wantOpen compares what a gateway says of hosts at port 443, for connections and names.
func wantOpen(t *testing.T, w *gateway.Gateway, want map[sandboxmcp.Host]bool) {
	t.Helper()
	got := map[sandboxmcp.Host]bool{}
	for h := range want {
		got[h] = w.Decide(t.Context(), egress.Ask{Host: h, Port: 443, Via: egress.ViaTLS}).Allowed
		if name := w.Name(h).Allowed; name != got[h] {
			t.Errorf("%s: got a connection %v and a name %v, want the same", h, got[h], name)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("what is open (-want +got):\n%s", d)
	}
}

func TestNothingIsOpenOutsideOfARun(t *testing.T) {
	e := open(t, []string{"api.site.test"})
	r := begin(t, e, &sandbox{}, nil, gateway.Request{ID: "r1", SessionID: "s1"})
	wantOpen(t, r.Gateway(), map[sandboxmcp.Host]bool{"api.site.test": false})
	letOut(t, r, nil)
	wantOpen(t, r.Gateway(), map[sandboxmcp.Host]bool{"api.site.test": true, "other.test": false})

	alone := begin(t, e, &sandbox{}, nil, gateway.Request{ID: "r2"})
	letOut(t, alone, nil)
	wantOpen(t, alone.Gateway(), map[sandboxmcp.Host]bool{"api.site.test": true})
	alone.End(false)
	wantOpen(t, alone.Gateway(), map[sandboxmcp.Host]bool{"api.site.test": false})
}

func TestDomainsThatTheCallerOpensEndWithTheRun(t *testing.T) {
	e := open(t, []string{"api.site.test"})
	sb := &sandbox{}
	r := begin(t, e, sb, nil, gateway.Request{ID: "r1", SessionID: "s1", Domains: []string{"own.test"}, Grant: true})
	letOut(t, r, nil)
	wantOpen(t, r.Gateway(), map[sandboxmcp.Host]bool{"own.test": true, "api.site.test": false})
	r.End(true)
	wantOpen(t, r.Gateway(), map[sandboxmcp.Host]bool{"own.test": false, "api.site.test": false})
	next := begin(t, e, sb, r.Gateway(), gateway.Request{ID: "r2", SessionID: "s1"})
	letOut(t, next, nil)
	wantOpen(t, next.Gateway(), map[sandboxmcp.Host]bool{"own.test": false, "api.site.test": true})
}

func TestAllowedDomainsNarrowUntilTheNextRun(t *testing.T) {
	e := open(t, []string{"api.site.test", "other.test"})
	r := begin(t, e, &sandbox{}, nil, gateway.Request{ID: "r1", SessionID: "s1", Domains: []string{"other.test"}})
	letOut(t, r, nil)
	wantOpen(t, r.Gateway(), map[sandboxmcp.Host]bool{"other.test": true, "api.site.test": false})
	r.End(true)
	wantOpen(t, r.Gateway(), map[sandboxmcp.Host]bool{"other.test": true, "api.site.test": false})
	if _, err := e.NewRun(t.Context(), gateway.Request{Caller: caller, Domains: []string{"closed.test"}, Names: secrets{}}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeEgressDenied {
		t.Errorf("a run with a domain that is not open: got %v, want %s", err, sandboxmcp.CodeEgressDenied)
	}
}

func TestNamesWithSecretsAreRefused(t *testing.T) {
	const secret = "hunter2-hunter2"
	m := redact.New([]redact.Secret{{Name: "TOKEN", Value: secret}}, false)
	e := open(t, []string{"*.site.test"}, func(c *gateway.Config) { c.Hold = time.Minute })
	r := begin(t, e, &sandbox{}, nil, gateway.Request{ID: "r1"})
	letOut(t, r, m)
	wantOpen(t, r.Gateway(), map[sandboxmcp.Host]bool{"plain.site.test": true, secret + ".site.test": false, secret + ".test": false})
	list, err := e.List(t.Context(), "")
	if err != nil || len(list.Pending) != 0 {
		t.Errorf("a person is asked for %+v, %v; want nothing", list.Pending, err)
	}
	_, err = e.NewRun(t.Context(), gateway.Request{Caller: caller, Domains: []string{secret + ".site.test"}, Names: secrets{m}})
	if sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument || strings.Contains(err.Error(), secret) {
		t.Errorf("a run whose allowed_domains hold a secret: got %v, want %s without it", err, sandboxmcp.CodeInvalidArgument)
	}
}

// TestAnswersAndNoticesHoldCommandsToPaste: they name the program as persons call it, and
// quote what a shell would change.
func TestAnswersAndNoticesHoldCommandsToPaste(t *testing.T) {
	var notices strings.Builder
	how := sandboxmcp.Invocation{Program: "/opt/sandboxmcp", StateDir: "/it's"}
	e := open(t, nil, func(c *gateway.Config) { c.Notices, c.Invocation = &notices, how })
	q, err := e.Question(t.Context(), caller, sandboxmcp.EgressAsk{Domain: "*.new.test"}, time.Time{}, "process")
	if err != nil {
		t.Fatal(err)
	}
	a, err := e.Ask(t.Context(), q, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := "`" + how.Line("egress approve "+a.ApprovalID) + "`"
	if !strings.Contains(a.HowToApprove, want) || !strings.Contains(notices.String(), want) {
		t.Errorf("got %q and the notice %q, want %s in both", a.HowToApprove, notices.String(), want)
	}
	denied, err := e.Decide(t.Context(), caller, sandboxmcp.AccessDecision{ID: a.ApprovalID, Deny: true})
	if want := "`" + how.Line("egress '*.new.test'"); err != nil || !strings.Contains(denied.HowToApprove, want) {
		t.Errorf("denied: got %q and %v, want %s", denied.HowToApprove, err, want)
	}
}

// TestRefusalsSayWhoCanOpen: a refusal tells the program how the host is opened, and a name of
// allowed_domains that is not open has a hint that its caller can follow.
func TestRefusalsSayWhoCanOpen(t *testing.T) {
	for _, c := range []struct {
		request gateway.Request
		off     bool
		want    egress.Recourse
		hint    string
	}{
		{gateway.Request{Asks: true}, false, egress.ByTool, "request_egress"},
		{gateway.Request{}, false, egress.ByPerson, "`sandboxmcp egress other.site.test`"},
		{gateway.Request{Reader: sandboxmcp.ReaderREST}, false, egress.ByPerson, "POST /approvals"},
		{gateway.Request{Asks: true}, true, egress.BySettings, "choose among the domains that the operator's settings open"},
		{gateway.Request{Reader: sandboxmcp.ReaderREST}, true, egress.BySettings, "choose among the domains that the operator's settings open"},
	} {
		e := open(t, nil, func(cfg *gateway.Config) { cfg.NoAsking = c.off })
		r := begin(t, e, &sandbox{}, nil, c.request)
		letOut(t, r, nil)
		w := r.Gateway()
		verdicts := []egress.Verdict{w.Decide(t.Context(), egress.Ask{Host: "other.site.test", Port: 80}), w.Name("other.site.test")}
		if v, closed := w.Closed(); closed {
			verdicts = append(verdicts, v)
		}
		for _, v := range verdicts {
			if v.Allowed || v.Rule != "" || v.Recourse != c.want {
				t.Errorf("%+v, approvals off %v: got %+v, want a refusal with %d", c.request, c.off, v, c.want)
			}
		}
		c.request.Caller, c.request.Names = caller, secrets{}
		c.request.Domains = []string{"other.site.test"}
		_, err := e.NewRun(t.Context(), c.request)
		if got := sandboxmcp.AsError(err); got.Code != sandboxmcp.CodeEgressDenied || !strings.Contains(got.Hint, c.hint) {
			t.Errorf("%+v, approvals off %v: got %s with the hint %q, want %q in it", c.request, c.off, got.Code, got.Hint, c.hint)
		}
	}
}

func TestAskMasksTheReasonAndRefusesSecretDomains(t *testing.T) {
	const secret = "hunter2-hunter2"
	m := redact.New([]redact.Secret{{Name: "TOKEN", Value: secret}}, false)
	e := open(t, nil)
	ask := func(domain, reason string) (sandboxmcp.AccessAnswer, error) {
		q, err := e.Question(t.Context(), caller, sandboxmcp.EgressAsk{Domain: domain, Reason: reason}, time.Time{}, "process")
		if err != nil || q.Answered {
			t.Fatalf("got %+v, %v; want a question that a person answers", q, err)
		}
		return e.Ask(t.Context(), q, m, 0)
	}
	if _, err := ask(secret+".test", ""); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("a domain with a secret: got %v, want %s", err, sandboxmcp.CodeInvalidArgument)
	}
	a, err := ask("new.test", "because "+secret)
	if err != nil || a.Status != sandboxmcp.ApprovalPending {
		t.Fatalf("got %+v, %v; want it pending", a, err)
	}
	p, err := e.Find(t.Context(), "", a.ApprovalID)
	if err != nil || strings.Contains(p.Reason, secret) || !strings.Contains(p.Reason, redact.Mask) {
		t.Errorf("got the reason %s, %v; want it masked", p.Reason, err)
	}
}

func TestPortsOfASandboxAreBounded(t *testing.T) {
	var many []string
	for i := range 40 {
		many = append(many, "api.site.test:"+strconv.Itoa(5000+i))
	}
	e := open(t, many)
	r, err := e.NewRun(t.Context(), gateway.Request{Caller: caller, ID: "r1", Names: secrets{}})
	if err != nil {
		t.Fatal(err)
	}
	sb := &sandbox{}
	if err := r.Connect(t.Context(), sb, nil, func() {}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Gateway().Close)
	if len(sb.ports) != 1 || len(sb.ports[0]) != 24 || r.Note() != "16 open ports can be reached through the proxy only" {
		t.Errorf("got listeners for %v and the note %q, want 24 and a note of 16", sb.ports, r.Note())
	}
}

// A program that has taken the port of a domain itself asks for its name again and again. The
// server does not try to listen there each time.
func TestListenersThatFailAreNotTriedAtOnceAgain(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	e := open(t, []string{"first.test"}, func(c *gateway.Config) { c.Now = func() time.Time { return at } })
	sb := &sandbox{}
	run := begin(t, e, sb, nil, gateway.Request{})
	letOut(t, run, nil)
	late, err := sandboxmcp.ParseDomain("late.test:9443")
	if err != nil {
		t.Fatal(err)
	}
	e.SetRules(gateway.Rules{Network: true, Operator: []sandboxmcp.Domain{late}})
	ask := func(want int) {
		t.Helper()
		for range 100 {
			if !run.Gateway().Name("late.test").Allowed {
				t.Fatal("an open name: got it refused, want it allowed")
			}
		}
		if sb.failed != want {
			t.Errorf("after 100 questions: got %d failed attempts, want %d", sb.failed, want)
		}
	}
	sb.fails = true
	ask(1)
	at = at.Add(2 * time.Second)
	ask(2)
	sb.fails, at = false, at.Add(2*time.Second)
	ask(2)
	if last := sb.ports[len(sb.ports)-1]; !slices.Equal(last, []int{9443}) {
		t.Errorf("the listeners that were made last: got those of %v, want 9443", last)
	}
}

func TestOfflineRunsHaveNoNetwork(t *testing.T) {
	e := open(t, []string{"api.site.test"})
	sb := &sandbox{}
	r := begin(t, e, sb, nil, gateway.Request{ID: "r1", Offline: true})
	letOut(t, r, nil)
	sb.before()
	if len(sb.ports) != 0 || sb.refuses != 1 || r.Environ() != nil {
		t.Errorf("got a network %v, %d that refuse, %v; want one that refuses", sb.ports, sb.refuses, r.Environ())
	}
	if v, closed := r.Gateway().Closed(); !closed || v.Rule != "offline" || v.Allowed {
		t.Errorf("got %+v, closed %v; want it closed, because the run is offline", v, closed)
	}
	if _, err := e.NewRun(t.Context(), gateway.Request{Offline: true, Domains: []string{"api.site.test"}}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeEgressDenied {
		t.Errorf("an offline run with allowed_domains: got %v, want %s", err, sandboxmcp.CodeEgressDenied)
	}
}

func TestRefusalsOnRecordAreBounded(t *testing.T) {
	var denied []sandboxmcp.DeniedRequest
	for i := range 40 {
		denied = append(denied, sandboxmcp.DeniedRequest{Host: strconv.Itoa(i) + ".test", Port: 443, Times: 1})
	}
	for n, want := range map[int]string{0: "", 1: "0.test:443, 1 times", 32: "31.test:443, 1 times", 33: "2 more destinations", 40: "9 more destinations"} {
		got := gateway.Refusals(denied[:n], sandboxmcp.AuditEntry{RequestID: "r1"})
		if len(got) != min(n, 32) {
			t.Fatalf("%d refusals: got %d entries", n, len(got))
		}
		if n > 0 && (got[len(got)-1].Detail != want || got[0].RequestID != "r1") {
			t.Errorf("%d refusals: got %+v last, want %q", n, got[len(got)-1], want)
		}
	}
}

// With nothing open the gateway has no socket until a program makes one. It then refuses, with the
// reason, and opens the network at the first connection that a person has allowed meanwhile.
func TestAttemptsWithNothingOpen(t *testing.T) {
	e := open(t, nil, func(c *gateway.Config) { c.Network = false })
	sb, changes := &sandbox{}, 0
	r, err := e.NewRun(t.Context(), gateway.Request{Caller: caller, ID: "r1", Names: secrets{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Connect(t.Context(), sb, nil, func() { changes++ }); err != nil {
		t.Fatal(err)
	}
	w := r.Gateway()
	t.Cleanup(w.Close)
	letOut(t, r, nil)
	if sb.before == nil || sb.refuses != 0 || len(sb.ports) != 0 || r.Report() != nil || r.Wall() != "" {
		t.Errorf("before an attempt: got %+v, report %+v, wall %q; want nothing", sb, r.Report(), r.Wall())
	}
	sb.before()
	if sb.refuses != 1 || len(sb.ports) != 0 || changes != 1 || r.Wall() != sandboxmcp.WallTold || r.Environ() != nil {
		t.Errorf("at an attempt: got %+v, %d changes, wall %q; want sockets that refuse", sb, changes, r.Wall())
	}
	wantOpen(t, w, map[sandboxmcp.Host]bool{"api.site.test": false})
	if v, closed := w.Closed(); !closed || v.Denial != sandboxmcp.DenialClosed || v.Rule != "" {
		t.Errorf("closed: got %+v, %v; want it closed because nobody has opened it", v, closed)
	}
	deny(t, e, "api.site.test")
	if v := w.Name("api.site.test"); v.Allowed || v.Denial != sandboxmcp.DenialPerson {
		t.Errorf("after a denial: got %+v, want its kind", v)
	}
	if v := w.Decide(t.Context(), egress.Ask{Host: "api.site.test", Port: 80}); v.Allowed || v.Denial != sandboxmcp.DenialPerson || v.Rule == "" {
		t.Errorf("a connection after a denial: got %+v, want its kind", v)
	}
	if _, err := e.Decide(t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test:5432"}}); err != nil {
		t.Fatal(err)
	}
	if v := w.Name("api.site.test"); !v.Allowed || !slices.Equal(sb.ports[0], []int{5432}) || r.Wall() != sandboxmcp.WallEgress {
		t.Errorf("after a grant: got %+v, ports %v, wall %q; want a listener for the port", v, sb.ports, r.Wall())
	}
	if v := w.Decide(t.Context(), egress.Ask{Host: "api.site.test", Port: 5432}); !v.Allowed {
		t.Errorf("a connection after a grant: got %+v, want it allowed", v)
	}
	r.Report()
	if o := r.Opened(); len(o) != 1 || o[0].Domain != "api.site.test:5432" || o[0].At.IsZero() {
		t.Errorf("opened: got %+v, want api.site.test:5432 and when", o)
	}
}

func deny(t *testing.T, e *gateway.Egress, domain string) {
	t.Helper()
	q, err := e.Question(t.Context(), caller, sandboxmcp.EgressAsk{Domain: domain}, time.Time{}, "process")
	if err != nil {
		t.Fatal(err)
	}
	a, err := e.Ask(t.Context(), q, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Decide(t.Context(), caller, sandboxmcp.AccessDecision{ID: a.ApprovalID, Deny: true}); err != nil {
		t.Fatal(err)
	}
}

// If the sandbox does not say when a program makes its first socket, attempts are told from the
// start. If its network cannot be opened, an allowed connection is refused.
func TestGatewayOfASandboxThatCannotTell(t *testing.T) {
	e := open(t, nil, func(c *gateway.Config) { c.Network = false })
	sb := &sandbox{deaf: true}
	r := begin(t, e, sb, nil, gateway.Request{ID: "r1"})
	letOut(t, r, nil)
	if sb.refuses != 1 || r.Wall() != sandboxmcp.WallToldNames {
		t.Errorf("got %d calls of Refuse, and the wall %q; want 1 and %q", sb.refuses, r.Wall(), sandboxmcp.WallToldNames)
	}
	sb.fails = true
	if _, err := e.Decide(t.Context(), caller, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}}); err != nil {
		t.Fatal(err)
	}
	if v := r.Gateway().Decide(t.Context(), egress.Ask{Host: "api.site.test", Port: 80}); v.Allowed || !strings.Contains(v.Reason, "no sockets") {
		t.Errorf("got %+v, want a refusal because there are no sockets", v)
	}
	silent := &sandbox{deaf: true, fails: true}
	r = begin(t, e, silent, nil, gateway.Request{ID: "r2", Domains: []string{}})
	letOut(t, r, nil)
	if !strings.Contains(r.Note(), "is not reported: no sockets") {
		t.Errorf("note: got %q, want that attempts are not reported", r.Note())
	}
}
