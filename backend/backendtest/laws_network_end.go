package backendtest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
)

// networkAtOnce calls Network concurrently for one sandbox, and then while the sandbox is ended.
func networkAtOnce(t *testing.T, s *suite) {
	before := CountBeside(t, s.b)
	func() {
		sb, err := s.b.Open(t.Context(), s.spec())
		must(t, err)
		defer func() { must(t, sb.Close(t.Context())) }()
		ask := func(first int) *sync.WaitGroup {
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					_, failed := sb.(backend.Networker).Network(t.Context(), []int{first + i})
					if code := sandboxmcp.CodeOf(failed); failed != nil && (first == 7000 || code != sandboxmcp.CodeBackendUnavailable) {
						t.Errorf("port %d: %v", first+i, failed)
					}
				})
			}
			return &all
		}
		ask(7000).Wait()
		n, err := sb.(backend.Networker).Network(t.Context(), nil)
		must(t, err)
		if len(n.TCP) != 10 {
			t.Errorf("%d ports are open, want 10", len(n.TCP))
		}
		late := ask(8000)
		must(t, sb.Kill(t.Context()))
		late.Wait()
	}()
	before.Same(t)
}

func networkStopped(t *testing.T, s *suite) {
	x := s.open(t)
	r, out, _ := x.start(t, x.python(t, "import os, signal\nprint('up', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)"))
	if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
		t.Fatal("the program did not start")
	}
	x.network(t)
	if err := x.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	_, _ = r.Wait(t.Context())
}

func networkEnds(t *testing.T, s *suite) {
	for name, end := range map[string]func(*testing.T, *box){
		"Kill":  func(t *testing.T, x *box) { t.Helper(); must(t, x.Kill(t.Context())) },
		"Close": func(t *testing.T, x *box) { t.Helper(); must(t, x.Close(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			x := s.open(t)
			n := x.network(t)
			ended := make(chan error, 1)
			m, err := x.Sandbox.(backend.Networker).Network(t.Context(), []int{6000})
			must(t, err)
			go func() {
				_, err := m.TCP[6000].Accept()
				ended <- err
			}()
			end(t, x)
			limit := time.NewTimer(10 * time.Second)
			defer limit.Stop()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("a connection was accepted")
				}
			case <-limit.C:
				t.Error("Accept does not end")
			}
			if _, err := n.Proxy.Accept(); err == nil {
				t.Error("the proxy still listens")
			}
			if _, err := x.Sandbox.(backend.Networker).Network(t.Context(), nil); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
				t.Errorf("afterwards Network says %v, want %s", err, sandboxmcp.CodeBackendUnavailable)
			}
		})
	}
}

func networkLeavesNothing(t *testing.T, s *suite) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	one := func() {
		x, err := s.b.Open(t.Context(), s.spec())
		must(t, err)
		n, err := x.(backend.Networker).Network(t.Context(), []int{9000})
		must(t, err)
		go echo(n.Proxy)
		go echo(n.TCP[80])
		must(t, x.Close(t.Context()))
	}
	one()
	before := CountBeside(t, s.b)
	for range rounds {
		one()
	}
	before.Same(t)
}

// flooding makes and closes many connections to the proxy. Then it opens up to 2000 connections that
// the test never accepts, and keeps them open.
const flooding = `
import resource, socket, sys
bad = 0
for i in range(int(sys.argv[1])):
    try: socket.create_connection(("127.0.0.1", 312), 10).close()
    except OSError: bad += 1
print(bad, flush=True)
kept = []
try:
    while len(kept) < 2000:
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(("1.2.3.4", 443))
        try: s.send(b"x" * 65536)
        except OSError: pass
        kept.append(s)
except OSError: pass
print(len(kept) > 100, flush=True)
sys.stdin.read()
import time; time.sleep(60)
`

// networkFlood: neither many connections nor connections that are never accepted keep a sandbox
// from ending or leave anything behind.
func networkFlood(t *testing.T, s *suite) {
	before := CountBeside(t, s.b)
	count := "10000"
	if testing.Short() || s.o.Tier == sandboxmcp.TierL4 || s.o.Contained { // there each connection costs several round trips through the engine
		count = "1000"
	}
	func() {
		sb, err := s.b.Open(t.Context(), s.spec())
		must(t, err)
		defer func() { must(t, sb.Close(t.Context())) }()
		x := &box{s: s, spec: s.spec(), Sandbox: sb}
		n, err := sb.(backend.Networker).Network(t.Context(), nil)
		must(t, err)
		go echo(n.Proxy)
		_, out, errs := x.start(t, x.python(t, flooding, count))
		if !soon(t, patience, func() bool { return strings.Count(out.String(), "\n") == 2 }) || out.String() != "0\nTrue\n" {
			t.Errorf("the program printed %q, %q", out.String(), errs.String())
		}
	}()
	before.Same(t)
}
