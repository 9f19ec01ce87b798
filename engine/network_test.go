package engine_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// site is a place to go to, and the settings for tests that lead names to it.
func site(t *testing.T) map[sandboxmcp.Domain]netip.AddrPort {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello from "+r.Host) }))
	t.Cleanup(s.Close)
	to := netip.MustParseAddrPort(s.Listener.Addr().String())
	return map[sandboxmcp.Domain]netip.AddrPort{{Host: "api.site.test"}: to, {Host: "other.site.test"}: to}
}

func domains(t *testing.T, texts ...string) []sandboxmcp.Domain {
	t.Helper()
	var list []sandboxmcp.Domain
	for _, s := range texts {
		d, err := sandboxmcp.ParseDomain(s)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, d)
	}
	return list
}

// connected is a fake whose programs ask the proxy of their network for what
// their code names, a line each.
func connected(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	var mu sync.Mutex
	var proxy string
	f.onNetwork = func(ports []int) (*backend.Network, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		proxy = l.Addr().String()
		return &backend.Network{Proxy: l, TCP: map[int]net.Listener{}}, nil
	}
	f.program = func(r *fakeRun) backend.Exit {
		for line := range strings.Lines(r.Code()) {
			mu.Lock()
			at := proxy
			mu.Unlock()
			fmt.Fprintln(r.Stdout, through(at, strings.TrimSpace(line), r.Killed))
		}
		return backend.Exit{}
	}
	return f
}

// through asks a proxy for http://host/ and says in a word what came. It ends when
// the program that asks is killed.
func through(proxy, host string, killed <-chan struct{}) string {
	if proxy == "" {
		return host + " no network"
	}
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		return host + " refused"
	}
	defer c.Close()
	answered := make(chan struct{})
	defer close(answered)
	go func() {
		select {
		case <-killed:
			_ = c.Close()
		case <-answered:
		}
	}()
	fmt.Fprintf(c, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host, host)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return host + " broken"
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return host + " " + strconv.Itoa(res.StatusCode)
}

func wantOut(t *testing.T, res sandboxmcp.Result, want ...string) {
	t.Helper()
	if got := strings.Split(strings.TrimSpace(res.Stdout), "\n"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A background run with a text that is not a domain is refused at once, not when it is looked up.
func TestBackgroundRunsAreCheckedAtTheirStart(t *testing.T) {
	e := open(t, &fake{})
	for domain, want := range map[string]sandboxmcp.Code{"": sandboxmcp.CodeInvalidArgument, "http://a.example.com/": sandboxmcp.CodeInvalidArgument, "10.0.0.1": sandboxmcp.CodeBlockedAddress} {
		_, err := e.Start(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: "1", AllowedDomains: []string{domain}})
		asCode(t, err, want)
	}
}

// If no host can be reached, no network is built.
func TestNoNetworkIsFree(t *testing.T) {
	f := connected(t)
	e := open(t, f)
	res := execute(t, e, shell("api.site.test"))
	wantOut(t, res, "api.site.test no network")
	if d := cmp.Diff(sandboxmcp.Network{Allowed: []string{}, Denied: []sandboxmcp.DeniedRequest{}}, res.Network); d != "" {
		t.Error(d)
	}
	if slices.Contains(f.seen(), "network") {
		t.Errorf("calls of the backend: got %v, want no network", f.seen())
	}
	for _, kv := range f.started[0].Env { // http_proxy names the one that refuses
		if strings.HasPrefix(kv, "HTTP_PROXY=") || strings.HasPrefix(kv, "SSL_CERT") {
			t.Errorf("environment: got %s, want nothing of an open network", kv)
		}
	}
}

func TestOperatorsDomains(t *testing.T) {
	f, dir := connected(t), filepath.Join(t.TempDir(), "state")
	e := open(t, f, at(dir), func(c *engine.Config) {
		c.Network, c.Operator, c.Detours = true, domains(t, "api.site.test"), site(t)
	})
	res := execute(t, e, shell("api.site.test\nother.site.test\nother.site.test"))
	wantOut(t, res, "api.site.test 200", "other.site.test 403", "other.site.test 403")
	if d := cmp.Diff([]string{"api.site.test:80"}, res.Network.Allowed); d != "" {
		t.Error(d)
	}
	if len(res.Network.Denied) != 1 || res.Network.Denied[0].Host != "other.site.test" || res.Network.Denied[0].Port != 80 || res.Network.Denied[0].Times != 2 {
		t.Errorf("denied: got %+v, want other.site.test:80 twice", res.Network.Denied)
	}
	if !slices.ContainsFunc(res.Isolation.Weak, func(s string) bool { return strings.Contains(s, "tests") }) {
		t.Errorf("weak: got %q, want the settings for tests named", res.Isolation.Weak)
	}
	if !slices.Contains(f.started[0].Env, "HTTP_PROXY=http://127.0.0.1:312") {
		t.Errorf("environment: got %q, want the proxy", f.started[0].Env)
	}
	var got []string
	for _, r := range rows(t, dir, "default") {
		if strings.HasPrefix(r.Action, "egress") {
			got = append(got, r.Action+" "+r.Detail+" "+string(r.RequestID))
		}
	}
	if d := cmp.Diff([]string{"egress_denied other.site.test:80, 2 times " + string(res.RequestID)}, got); d != "" {
		t.Errorf("record (-want +got):\n%s", d)
	}
	// Without the network the list opens nothing.
	off := open(t, connected(t), func(c *engine.Config) { c.Operator = domains(t, "api.site.test") })
	wantOut(t, execute(t, off, shell("api.site.test")), "api.site.test no network")
}

// With the network on and no host open, refused connections are counted.
func TestNetworkWithNothingOpen(t *testing.T) {
	e := open(t, connected(t), func(c *engine.Config) { c.Network = true })
	res := execute(t, e, shell("api.site.test"))
	wantOut(t, res, "api.site.test 403")
	if len(res.Network.Denied) != 1 || res.Network.Denied[0].Host != "api.site.test" || res.Network.Denied[0].Port != 80 {
		t.Errorf("denied: got %+v, want api.site.test:80", res.Network.Denied)
	}
}

// A caller that may not open hosts can only narrow the list.
// TestNotesOfClosedDomainsFitTheReader: the note of a refused host says what its reader can do.
func TestNotesOfClosedDomainsFitTheReader(t *testing.T) {
	for _, c := range []struct {
		request sandboxmcp.Request
		off     bool
		want    string
	}{
		{sandboxmcp.Request{}, false, "Call request_egress with it"},
		{sandboxmcp.Request{Unoffered: []string{"request_egress"}}, false, "The user can open it with `sandboxmcp egress other.site.test`"},
		{sandboxmcp.Request{Reader: sandboxmcp.ReaderREST}, false, "POST /approvals"},
		{sandboxmcp.Request{}, true, "Only the operator's settings open domains"},
	} {
		e := open(t, connected(t), func(cfg *engine.Config) { cfg.Network, cfg.NoAsking = true, c.off })
		r := shell("other.site.test")
		r.Reader, r.Unoffered = c.request.Reader, c.request.Unoffered
		wantNote(t, execute(t, e, r), c.want)
	}
}

func TestAllowedDomainsOnlyNarrow(t *testing.T) {
	f := connected(t)
	e := open(t, f, func(c *engine.Config) {
		c.Network, c.Operator, c.Detours = true, domains(t, "api.site.test", "*.wide.test", "port.test:8443"), site(t)
	})
	ask := func(list ...string) error {
		r := shell("api.site.test\nother.site.test")
		r.AllowedDomains = append([]string{}, list...)
		_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, r)
		return err
	}
	for _, ok := range [][]string{{}, {"api.site.test"}, {"API.site.test."}, {"api.site.test:443"}, {"a.wide.test", "*.b.wide.test"}, {"port.test:8443"}} {
		if err := ask(ok...); err != nil {
			t.Errorf("%q: got %v, want nil", ok, err)
		}
	}
	fresh := shell("x")
	fresh.SessionID, fresh.AllowedDomains = "new", []string{"other.site.test"}
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, fresh)
	wantCode(t, err, sandboxmcp.CodeEgressDenied)
	if list, err := e.Sessions(t.Context(), sandboxmcp.Caller{}); err != nil || len(list) != 0 {
		t.Errorf("sessions after a refused run: got %v, %v; want none", list, err)
	}
	before, _ := f.starts()
	for _, bad := range [][]string{
		{"other.site.test"}, {"*"}, {"*.com"}, {"*.site.test"}, {"wide.test"}, {"api.site.test", "other.site.test"}, {"api.site.test:22"}, {"port.test"}, {"port.test:443"},
	} {
		e := asCode(t, ask(bad...), sandboxmcp.CodeEgressDenied)
		if !strings.Contains(e.Hint, "request_egress") {
			t.Errorf("%q: got hint %q, want request_egress named", bad, e.Hint)
		}
	}
	for _, bad := range []string{"http://api.site.test/", "a b", "", "api.site.test\nother.site.test"} {
		wantCode(t, ask(bad), sandboxmcp.CodeInvalidArgument)
	}
	wantCode(t, ask("127.0.0.1"), sandboxmcp.CodeBlockedAddress)
	wantCode(t, ask(slices.Repeat([]string{"api.site.test"}, 257)...), sandboxmcp.CodeInvalidArgument)
	if after, _ := f.starts(); after != before {
		t.Errorf("programs of refused requests: got %d started, want none", after-before)
	}
	r := shell("api.site.test")
	r.AllowedDomains = []string{"*.b.wide.test"}
	wantOut(t, execute(t, e, r), "api.site.test 403")
	r.AllowedDomains = []string{}
	wantOut(t, execute(t, e, r), "api.site.test 403")
}

// A caller that may open hosts opens them for one request. The record says so before the
// program runs.
func TestGrantDomains(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	e := open(t, connected(t), at(dir), func(c *engine.Config) { c.Detours = site(t) })
	r := shell("api.site.test\nother.site.test")
	r.AllowedDomains, r.GrantDomains = []string{"api.site.test"}, true
	res := execute(t, e, r)
	wantOut(t, res, "api.site.test 200", "other.site.test 403")
	var got []string
	for _, row := range rows(t, dir, "default") {
		got = append(got, row.Action+" "+row.Phase)
		if row.Action == "egress_approved" && (fmt.Sprint(row.Metadata["domains"]) != "[api.site.test]" || row.RequestID != res.RequestID || row.Actor != "tester") {
			t.Errorf("got %+v", row)
		}
	}
	if d := cmp.Diff([]string{"execute intent", "egress_approved outcome", "execute outcome", "egress_denied outcome"}, got); d != "" {
		t.Errorf("record (-want +got):\n%s", d)
	}
	r.AllowedDomains, r.GrantDomains = nil, false
	if res := execute(t, e, r); strings.Contains(res.Stdout, "200") {
		t.Errorf("the next run: got %q, want no answer of the host", res.Stdout)
	}

	strict := open(t, connected(t), func(c *engine.Config) { c.NoAsking, c.Network, c.Operator = true, true, domains(t, "api.site.test") })
	r.AllowedDomains, r.GrantDomains = []string{"api.site.test", "other.site.test"}, true
	_, err := strict.Execute(t.Context(), sandboxmcp.Caller{}, r)
	wantCode(t, err, sandboxmcp.CodeNetworkDisabled)
}

// On a backend without a network, a request that demands one is refused, and any other has a
// note in its result.
func TestBackendWithoutNetwork(t *testing.T) {
	for name, f := range map[string]*fake{
		"none": {},
		"refuses": {onNetwork: func([]int) (*backend.Network, error) {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "not here")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, f, func(c *engine.Config) { c.Network, c.Operator = true, domains(t, "api.site.test") })
			r := shell("x")
			r.AllowedDomains = []string{"api.site.test"}
			_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, r)
			wantCode(t, err, sandboxmcp.CodeIsolationUnavailable)
			res := execute(t, e, shell("x"))
			if text := fmt.Sprint(res.Metadata["network"]); !strings.Contains(text, "not available") {
				t.Errorf("metadata: got %v, want a note that the network is not available", res.Metadata)
			}
		})
	}
}

func TestOffline(t *testing.T) {
	e := open(t, connected(t), func(c *engine.Config) {
		c.Network, c.Operator, c.Detours = true, domains(t, "api.site.test"), site(t)
	})
	r := shell("api.site.test")
	r.Offline = true
	wantOut(t, execute(t, e, r), "api.site.test no network")
	r.AllowedDomains = []string{"api.site.test"}
	_, err := e.Execute(t.Context(), sandboxmcp.Caller{}, r)
	wantCode(t, err, sandboxmcp.CodeEgressDenied)
}

// A host that a person opens can be reached from the next run on, until the grant ends.
func TestApprovals(t *testing.T) {
	var notices bytes.Buffer
	e := open(t, connected(t), func(c *engine.Config) { c.Detours, c.Notices = site(t), &notices })
	a, err := e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "API.site.test", Reason: "to look"})
	if err != nil || a.Status != sandboxmcp.ApprovalPending || a.Approved || a.ExpiresAt == nil {
		t.Fatalf("got %+v, %v", a, err)
	}
	if !strings.Contains(a.HowToApprove, "`sandboxmcp egress approve "+a.ApprovalID+"`") || !strings.Contains(notices.String(), a.ApprovalID) {
		t.Errorf("got how %q, notice %q; want the command and the id", a.HowToApprove, notices.String())
	}
	st, err := e.Inspect(t.Context(), sandboxmcp.Caller{}, "")
	if err != nil || len(st.Egress.Pending) != 1 || st.Egress.Pending[0].Domain != "api.site.test" || len(st.Egress.Allowed) != 0 {
		t.Errorf("state: got %+v, %v; want api.site.test pending", st.Egress, err)
	}
	wantOut(t, execute(t, e, shell("api.site.test")), "api.site.test no network")
	wait := background(t, func() (sandboxmcp.AccessAnswer, error) {
		return e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "api.site.test", Wait: 15 * time.Second})
	})
	done, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{ID: a.ApprovalID})
	if err != nil || !done.Approved {
		t.Fatalf("got %+v, %v", done, err)
	}
	if got, err := wait(); err != nil || !got.Approved || got.ApprovalID != a.ApprovalID && got.ApprovalID != "" || got.ExpiresAt == nil {
		t.Errorf("who waited heard %+v, %v", got, err)
	}
	wantOut(t, execute(t, e, shell("api.site.test\nother.site.test")), "api.site.test 200", "other.site.test 403")
	if st, _ := e.Inspect(t.Context(), sandboxmcp.Caller{}, ""); !slices.Equal(st.Egress.Allowed, []string{"api.site.test"}) {
		t.Errorf("state: got %+v, want api.site.test allowed", st.Egress)
	}
	if res := execute(t, e, shell("api.site.test"), of("other")); strings.Contains(res.Stdout, "200") {
		t.Errorf("another namespace: got %q, want no answer of the host", res.Stdout)
	}
	if _, err := e.RevokeEgress(t.Context(), sandboxmcp.Caller{Actor: "me"}, "api.site.test"); err != nil {
		t.Fatal(err)
	}
	if res := execute(t, e, shell("api.site.test")); strings.Contains(res.Stdout, "200") {
		t.Errorf("after it was revoked: got %q, want no answer of the host", res.Stdout)
	}
	if got, err := e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "x.site.test"}); err != nil || got.Status != sandboxmcp.ApprovalPending {
		t.Errorf("got %+v, %v", got, err)
	}
}

// If approvals are off, no question is asked.
func TestNoAsking(t *testing.T) {
	var notices bytes.Buffer
	e := open(t, connected(t), func(c *engine.Config) {
		c.NoAsking, c.Notices, c.Network, c.Operator = true, &notices, true, domains(t, "api.site.test")
	})
	got, err := e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "x.site.test", Wait: 10 * time.Second})
	if err != nil || got.Status != sandboxmcp.ApprovalDenied || got.Approved || got.ApprovalID != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := e.RequestEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "api.site.test"}); err != nil || !got.Approved {
		t.Errorf("what the settings open: %+v, %v", got, err)
	}
	_, err = e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "x.site.test"}})
	wantCode(t, err, sandboxmcp.CodeNetworkDisabled)
	r := shell("x")
	r.Hold = time.Second
	_, err = e.Execute(t.Context(), sandboxmcp.Caller{}, r)
	wantCode(t, err, sandboxmcp.CodeNetworkDisabled)
	if notices.Len() > 0 {
		t.Errorf("notices: got %q, want none", notices.String())
	}
}

// Open hosts are looked up at each connection: a person can open and close a host during a
// run.
func TestApprovalDuringARun(t *testing.T) {
	f := connected(t)
	once := f.program
	step := make(chan string)
	f.program = func(r *fakeRun) backend.Exit {
		for range step {
			var out bytes.Buffer
			one := *r
			one.Stdout = &out
			exit := once(&one)
			step <- strings.TrimSpace(out.String())
			if exit.Code != 0 {
				return exit
			}
		}
		return backend.Exit{}
	}
	e := open(t, f, func(c *engine.Config) { c.Network, c.Detours = true, site(t) })
	events, stop := e.Subscribe(everyone())
	defer stop()
	wait := executeIn(t.Context(), t, e, shell("api.site.test"))
	try := func(want string) {
		t.Helper()
		step <- ""
		if got := <-step; got != "api.site.test "+want {
			t.Errorf("got %q, want %s", got, want)
		}
	}
	try("403")
	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "api.site.test"}}); err != nil {
		t.Fatal(err)
	}
	try("200")
	if _, err := e.RevokeEgress(t.Context(), sandboxmcp.Caller{Actor: "me"}, "api.site.test"); err != nil {
		t.Fatal(err)
	}
	try("403")
	close(step)
	res, err := wait()
	if err != nil || len(res.Network.Denied) != 1 || res.Network.Denied[0].Times != 2 || !slices.Equal(res.Network.Allowed, []string{"api.site.test:80"}) {
		t.Errorf("got %+v, %v", res.Network, err)
	}
	stop()
	var told []sandboxmcp.EventType
	for ev := range events {
		if strings.HasPrefix(string(ev.Type), "egress.") {
			told = append(told, ev.Type)
		}
	}
	if d := cmp.Diff([]sandboxmcp.EventType{sandboxmcp.EventEgressApproved, sandboxmcp.EventEgressDenied}, told); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

// A held connection waits for the decision. Then it goes on or is refused.
func TestHeldConnections(t *testing.T) {
	for name, deny := range map[string]bool{"approved": false, "denied": true} {
		t.Run(name, func(t *testing.T) {
			e := open(t, connected(t), func(c *engine.Config) { c.Detours = site(t) })
			r := shell("api.site.test\napi.site.test")
			r.Hold = 20 * time.Second
			wait := executeIn(t.Context(), t, e, r)
			var asked sandboxmcp.Approval
			eventually(t, "somebody is asked", func() bool {
				l, err := e.Egress(t.Context(), sandboxmcp.Caller{})
				if err == nil && len(l.Pending) == 1 {
					asked = l.Pending[0]
				}
				return asked.ID != ""
			})
			if asked.Domain != "api.site.test" || asked.RequestID == "" {
				t.Errorf("question: got %+v, want api.site.test with a request id", asked)
			}
			if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{ID: asked.ID, Deny: deny}); err != nil {
				t.Fatal(err)
			}
			res, err := wait()
			if err != nil {
				t.Fatal(err)
			}
			if deny {
				wantOut(t, res, "api.site.test 403", "api.site.test 403")
			} else {
				wantOut(t, res, "api.site.test 200", "api.site.test 200")
			}
		})
	}
	t.Run("nobody answers", func(t *testing.T) {
		e := open(t, connected(t), func(c *engine.Config) { c.Hold = 50 * time.Millisecond })
		wantOut(t, execute(t, e, shell("api.site.test")), "api.site.test 403")
	})
	t.Run("the run ends", func(t *testing.T) {
		f := connected(t)
		e := open(t, f)
		ctx, cancel := context.WithCancelCause(t.Context())
		r := shell("api.site.test")
		r.Hold = 20 * time.Minute
		wait := executeIn(ctx, t, e, r)
		eventually(t, "somebody is asked", func() bool {
			l, err := e.Egress(t.Context(), sandboxmcp.Caller{})
			return err == nil && len(l.Pending) == 1
		})
		cancel(errors.New("enough"))
		if res, err := wait(); err != nil || res.Status != sandboxmcp.StatusCancelled {
			t.Errorf("got %v, %v", res.Status, err)
		}
	})
}

// The number of refusals that a run adds to the record is bounded.
func TestRefusalsAreBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	e := open(t, connected(t), at(dir), func(c *engine.Config) { c.Network = true })
	var code strings.Builder
	for i := range 60 {
		fmt.Fprintf(&code, "a%d.site.test\n", i)
	}
	execute(t, e, shell(code.String()))
	var denied []sandboxmcp.AuditEntry
	for _, r := range rows(t, dir, "default") {
		if r.Action == "egress_denied" {
			denied = append(denied, r)
		}
	}
	if len(denied) != 32 || denied[31].Detail != "29 more destinations" {
		t.Errorf("denials on record: got %d, the last %q; want 32, the last for 29 more", len(denied), denied[len(denied)-1].Detail)
	}
}

// Revoking a host closes the connections that a program has to it.
func TestRevokedWhileInUse(t *testing.T) {
	begun := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello")
		http.NewResponseController(w).Flush() //nolint:errcheck // the reader tells
		begun <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	e := open(t, connected(t), func(c *engine.Config) {
		c.Detours = map[sandboxmcp.Domain]netip.AddrPort{{Host: "slow.site.test"}: netip.MustParseAddrPort(s.Listener.Addr().String())}
	})
	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "slow.site.test"}}); err != nil {
		t.Fatal(err)
	}
	wait := executeIn(t.Context(), t, e, shell("slow.site.test"))
	<-begun
	if _, err := e.RevokeEgress(t.Context(), sandboxmcp.Caller{Actor: "test"}, "slow.site.test"); err != nil {
		t.Fatal(err)
	}
	res, err := wait()
	if err != nil || res.Status != sandboxmcp.StatusCompleted {
		t.Fatalf("the run: got %v, %v; want completed", res.Status, err)
	}
	if len(res.Network.Denied) != 1 || !strings.Contains(res.Network.Denied[0].Reason, "not open any more") {
		t.Errorf("denied: got %+v, want one as not open any more", res.Network.Denied)
	}
}

// A held connection that a person let through stays open for as long as it takes.
func TestHeldConnectionGoesOn(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello")
		http.NewResponseController(w).Flush() //nolint:errcheck // the reader tells
		time.Sleep(1200 * time.Millisecond)   // longer than the interval at which grants are checked again
		fmt.Fprintln(w, "goodbye")
	}))
	t.Cleanup(s.Close)
	e := open(t, connected(t), func(c *engine.Config) {
		c.Detours = map[sandboxmcp.Domain]netip.AddrPort{{Host: "slow.site.test"}: netip.MustParseAddrPort(s.Listener.Addr().String())}
	})
	r := shell("slow.site.test")
	r.Hold, r.AllowedDomains, r.GrantDomains = 20*time.Second, []string{"own.site.test"}, true
	wait := executeIn(t.Context(), t, e, r)
	id := ""
	eventually(t, "somebody is asked", func() bool {
		l, err := e.Egress(t.Context(), sandboxmcp.Caller{})
		if err == nil && len(l.Pending) == 1 {
			id = l.Pending[0].ID
		}
		return id != ""
	})
	if _, err := e.DecideEgress(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AccessDecision{ID: id}); err != nil {
		t.Fatal(err)
	}
	res, err := wait()
	if err != nil || len(res.Network.Denied) != 0 || !slices.Equal(res.Network.Allowed, []string{"slow.site.test:80"}) {
		t.Errorf("network: got %+v, %v; want slow.site.test:80 allowed and nothing denied", res.Network, err)
	}
}

// TestIndexesAreTold: a program that asks a package index is told how packages are installed. No
// person is to open its host.
func TestIndexesAreTold(t *testing.T) {
	f := connected(t)
	e := open(t, f, func(c *engine.Config) {
		c.Network, c.Operator, c.Detours = true, domains(t, "api.site.test"), site(t)
		c.ClientEnv = []string{"PIP_INDEX_URL=https://index.site.test/simple"}
	})
	wantNote(t, execute(t, e, shell("index.site.test")), "No connection to index.site.test. Packages are installed by install_package")
	wantNote(t, execute(t, e, shell("other.site.test")), "No connection to other.site.test: the domain is not open.")
}
