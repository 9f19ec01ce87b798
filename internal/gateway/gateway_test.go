package gateway_test

import (
	"context"
	"path/filepath"
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

	ports [][]int // of each call of Network
}

func (s *sandbox) Network(_ context.Context, ports []int) (*backend.Network, error) {
	s.ports = append(s.ports, ports)
	return &backend.Network{}, nil
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
	c := gateway.Config{Store: s, Audit: log, Events: event.New(nil), Network: true}
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
	if err = run.Connect(t.Context(), sb, have); err != nil {
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
		if name := w.AllowsName(h); name != got[h] {
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

func TestAskMasksTheReasonAndRefusesSecretDomains(t *testing.T) {
	const secret = "hunter2-hunter2"
	m := redact.New([]redact.Secret{{Name: "TOKEN", Value: secret}}, false)
	e := open(t, nil)
	ask := func(domain, reason string) (sandboxmcp.EgressAnswer, error) {
		q, err := e.Question(t.Context(), caller, sandboxmcp.EgressAsk{Domain: domain, Reason: reason})
		if err != nil || q.Answered {
			t.Fatalf("got %+v, %v; want a question that a person answers", q, err)
		}
		return e.Ask(t.Context(), q, m)
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
	if err := r.Connect(t.Context(), sb, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Gateway().Close)
	if len(sb.ports) != 1 || len(sb.ports[0]) != 24 || r.Note() != "16 open ports can be reached through the proxy only" {
		t.Errorf("got listeners for %v and the note %q, want 24 and a note of 16", sb.ports, r.Note())
	}
}

func TestOfflineRunsHaveNoNetwork(t *testing.T) {
	e := open(t, []string{"api.site.test"})
	sb := &sandbox{}
	r := begin(t, e, sb, nil, gateway.Request{ID: "r1", Offline: true})
	if r.Gateway() != nil || len(sb.ports) != 0 || r.Environ() != nil {
		t.Errorf("got a network %v, %v; want none", sb.ports, r.Environ())
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
