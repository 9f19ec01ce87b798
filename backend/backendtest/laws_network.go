package backendtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// networkLaws are the tests of sandboxes that can have a network.
var networkLaws = []law{
	{"EveryAddressLeadsToTheListeners", networkReaches},
	{"OtherPortsAndProtocolsLeadNowhere", networkRefuses},
	{"NoProgramHasTheListenersPorts", networkPorts},
	{"OwnServersAreReached", networkOwn},
	{"NamesAreAnsweredFromTheAddressAsked", networkNames},
	{"ProgramsGetThereByName", networkPrograms},
	{"ListenersAreOfOneSandbox", networkOfOne},
	{"PortsAreAddedWhileAProgramRuns", networkLater},
	{"PortsThatAProgramHasAreAnError", networkTaken},
	{"PortsThatCannotBeAreAnError", networkNonsense},
	{"NetworkIsAskedForAtOnce", networkAtOnce},
	{"StoppedProgramsHoldNothingUp", networkStopped},
	{"NetworkEndsWithTheSandbox", networkEnds},
	{"NetworkLeavesNothing", networkLeavesNothing},
	{"FloodOfConnectionsEnds", networkFlood},
	{"NetworkIsAWallThatIsTold", networkTold},
	{"RefusedDestinationsAreTold", networkRefused},
	{"AttemptsAreToldWhileNothingIsOpen", networkRefuse},
}

// networks runs networkLaws.
func (s *suite) networks(t *testing.T) {
	sb := s.open(t)
	if _, ok := sb.Sandbox.(backend.Networker); !ok {
		t.Skip("the backend's sandboxes have no network")
	}
	if reason := s.o.Lacks["Networks"]; reason != "" {
		t.Skip(reason)
	}
	if !s.full() {
		_, err := sb.Sandbox.(backend.Networker).Network(t.Context(), nil)
		if got := sandboxmcp.CodeOf(err); got != sandboxmcp.CodeIsolationUnavailable {
			t.Errorf("Network failed with %v, want %s", err, sandboxmcp.CodeIsolationUnavailable)
		}
		return
	}
	for _, l := range networkLaws {
		t.Run(l.name, func(t *testing.T) {
			if reason := s.o.Lacks[l.name]; reason != "" {
				t.Skip(reason)
			}
			l.test(t, s)
		})
	}
	s.net = true
	defer func() { s.net = false }()
	for _, name := range []string{"a04-fd-leak.py", "a11-proc-sys.py", "a16-kernel-surface.py", "a19-socket-families.py", "a24-status.py", "a24-view.py", "b08-port.py", "c01-python-network.py"} {
		t.Run("Attack/"+name, func(t *testing.T) { s.attack(t, name, readHead(t, string(payload(t, name)))) })
	}
}

func networkReaches(t *testing.T, s *suite) {
	x := s.open(t)
	x.network(t, 5432, 22)
	x.attempt(t, [][2]string{
		{"tcp 1.2.3.4 80", "1.2.3.4:80"},
		{"tcp 93.184.216.34 443", "93.184.216.34:443"},
		{"tcp 169.254.169.254 80", "169.254.169.254:80"},
		{"tcp 10.255.0.1 5432", "10.255.0.1:5432"},
		{"tcp 198.18.0.5 22", "198.18.0.5:22"},
		{"tcp 127.0.0.1 80", "127.0.0.1:80"},
		{"tcp 127.0.0.1 312", "127.0.0.1:312"},
		{"tcp 2001:db8::1 443", "ENETUNREACH"},
		{"tcp fd00:ec2::254 80", "ENETUNREACH"},
		{"tcp ::1 5432", "[::1]:5432"},
		{"tcp ::ffff:10.1.1.1 80", "10.1.1.1:80"},
		{"tcp 9.9.9.9 53", "9.9.9.9:53"},
	})
}

func networkRefuses(t *testing.T, s *suite) {
	x := s.open(t)
	host, heard := deaf(t)
	x.attempt(t, [][2]string{ // before the network is opened
		{"tcp 1.2.3.4 80", "ENETUNREACH"},
		{"tcp 2001:db8::1 80", "ENETUNREACH"},
		{"tcp 127.0.0.1 312", "ECONNREFUSED"},
		{"udp 127.0.0.1 53", "ECONNREFUSED"},
	})
	x.network(t)
	var want [][2]string
	for _, a := range []string{"127.0.0.1", "1.2.3.4", "::1"} {
		for _, to := range []string{"tcp " + a + " 22", "tcp " + a + " 8443", "udp " + a + " 443", "udp " + a + " 123", "udp " + a + " 5353"} {
			want = append(want, [2]string{to, "ECONNREFUSED"})
		}
	}
	for _, p := range host {
		want = append(want, [2]string{p, "ECONNREFUSED"})
	}
	want = append(want, [2]string{"tcp 2001:db8::1 22", "ENETUNREACH"}, [2]string{"udp 2001:db8::1 443", "ENETUNREACH"})
	x.attempt(t, append(want, [2]string{"tcp 1.2.3.4 312", "ECONNREFUSED"}))
	for name, n := range heard() {
		if n != 0 {
			t.Errorf("%s of the host was reached", name)
		}
	}
	e := x.run(t, x.python(t, `
import socket, errno, os
def attempt(name, f):
    try: print(name, f() or "ok")
    except OSError as e: print(name, errno.errorcode[e.errno])
def route():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    s.sendall(bytes.fromhex("24000000180005060100000000000000") + bytes([2,0,0,0,254,3,0,1,0,0,0,0,8,0,4,0,1,0,0,0]))
    raise OSError(-int.from_bytes(s.recv(100)[16:20], "little", signed=True), "")
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("raw6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58))
attempt("ping", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1))
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW, 0))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM, 0))
attempt("route", route)
attempt("ports", lambda: open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w"))
`))
	got := strings.Fields(e.Out)
	for i := 0; i+1 < len(got); i += 2 {
		if ok := slices.Contains([]string{"EPERM", "EACCES", "EAFNOSUPPORT", "EPROTONOSUPPORT", "EROFS"}, got[i+1]); !ok {
			t.Errorf("%s: %s, want a refusal", got[i], got[i+1])
		}
	}
	if len(got) != 14 {
		t.Errorf("the program printed %q, %q", e.Out, e.Err)
	}
}

// binder tries to bind ports in every way.
const binder = `
import socket, errno, sys
for port in (53, 80, 443, 312, 5432):
    for host in ("0.0.0.0", "127.0.0.1", "198.18.0.5", "::", "::1"):
        for kind in ((socket.SOCK_STREAM, socket.SOCK_DGRAM) if port == 53 else (socket.SOCK_STREAM,)):
            for option in (0, socket.SO_REUSEADDR, socket.SO_REUSEPORT, socket.SO_BINDTODEVICE):
                s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
                if option: s.setsockopt(socket.SOL_SOCKET, option, b"lo" if option == socket.SO_BINDTODEVICE else 1)
                if ":" in host: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, option == 0)
                try:
                    s.bind((host, port))
                    if kind == socket.SOCK_STREAM: s.listen()
                    print(port, host, option, "bound")
                except OSError as e:
                    if e.errno not in (errno.EACCES, errno.EADDRINUSE, errno.EPERM): print(port, host, option, e)
                s.close()
print("tried")
`

func networkPorts(t *testing.T, s *suite) {
	x := s.open(t)
	x.network(t, 5432)
	e := x.run(t, x.python(t, binder))
	if got, want := e.Out, "tried\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s%s", got, want, e.Err)
	}
}

func networkOwn(t *testing.T, s *suite) {
	x := s.open(t)
	x.network(t)
	out := x.run(t, x.python(t, `
import socket, threading
for host in ("127.0.0.1", "0.0.0.0", "::1"):
    s = socket.create_server((host, 8000), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    c = socket.create_connection(("127.0.0.1" if host == "0.0.0.0" else host, 8000))
    a, _ = s.accept()
    a.sendall(b"own")
    print(c.recv(9).decode())
    for x in (a, c, s): x.close()
`))
	if out.Out != "own\nown\nown\n" {
		t.Errorf("got %q, %q", out.Out, out.Err)
	}
}

func networkNames(t *testing.T, s *suite) {
	x := s.open(t)
	x.network(t)
	var want [][2]string
	for _, a := range []string{"127.0.0.1", "8.8.8.8", "10.0.0.53", "::1"} {
		want = append(want, [2]string{"udp " + a + " 53", nameAddress.String()})
	}
	x.attempt(t, want)
}

func networkPrograms(t *testing.T, s *suite) {
	x := s.open(t)
	e := x.run(t, x.python(t, "import socket\ntry: socket.getaddrinfo('some.test', 80)\nexcept OSError as e: print('none')"))
	if e.Out != "none\n" {
		t.Errorf("without a network a name was %q, %q", e.Out, e.Err)
	}
	n := x.network(t)
	want := nameAddress.String() + ":80"
	check := func(t *testing.T, e ended) {
		t.Helper()
		if strings.TrimSpace(e.Out) != want {
			t.Errorf("got %q, %q, want %s", e.Out, e.Err, want)
		}
	}
	t.Run("Python", func(t *testing.T) {
		check(t, x.run(t, x.python(t, "import urllib.request\nprint(urllib.request.urlopen('http://some.test/').read().decode())")))
	})
	t.Run("PythonByProxy", func(t *testing.T) { // as Environ says
		p := x.python(t, "import urllib.request\nprint(urllib.request.urlopen('http://some.test/').read().decode())")
		p.Env = append(x.environment(nil), n.Environ()...)
		if e := x.run(t, p); strings.TrimSpace(e.Out) != "127.0.0.1:312" {
			t.Errorf("got %q, %q, want the proxy", e.Out, e.Err)
		}
	})
	t.Run("Node", func(t *testing.T) {
		testkit.Need(t, "node", s.o.Node != "", "no interpreter that a sandbox can see")
		check(t, x.run(t, backend.Process{Argv: []string{s.o.Node, "-e", "fetch('http://some.test/').then(r => r.text()).then(console.log)"}}))
	})
	t.Run("NodeResolver", func(t *testing.T) { // node has its own resolver, besides the C library's
		testkit.Need(t, "node", s.o.Node != "", "no interpreter that a sandbox can see")
		e := x.run(t, backend.Process{Argv: []string{s.o.Node, "-e", "require('dns').promises.resolve4('some.test').then(a => console.log(a[0] + ':80'))"}})
		check(t, e)
	})
	t.Run("Curl", func(t *testing.T) {
		testkit.Need(t, "curl", s.o.Curl != "", "no curl that a sandbox can see")
		check(t, x.run(t, backend.Process{Argv: []string{s.o.Curl, "-sS", "http://some.test/"}}))
	})
	t.Run("StaticGo", func(t *testing.T) {
		testkit.Need(t, "static", s.o.Static != nil, "no static program")
		file := []backend.ProgramFile{{Name: "static", Data: s.o.Static}}
		if err := x.Files().Put(t.Context(), "static", file[0].Data, true); err != nil {
			t.Fatal(err)
		}
		check(t, x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", "cp static /tmp/s && chmod 700 /tmp/s && exec /tmp/s http://some.test/"}, Env: []string{"PATH=/usr/bin:/bin"}}))
	})
}

func networkOfOne(t *testing.T, s *suite) {
	with, other, without := s.open(t), s.open(t), s.open(t)
	with.network(t)
	m, err := other.Sandbox.(backend.Networker).Network(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // the proxy gives another answer
		for {
			c, err := m.Proxy.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 512))
			_, _ = c.Write([]byte("the other"))
			_ = c.Close()
		}
	}()
	other.attempt(t, [][2]string{{"tcp 127.0.0.1 312", "the other"}})
	with.attempt(t, [][2]string{{"tcp 127.0.0.1 312", "127.0.0.1:312"}})
	without.attempt(t, [][2]string{{"tcp 127.0.0.1 312", "ECONNREFUSED"}, {"tcp 1.2.3.4 80", s.closed()}})
}

func networkLater(t *testing.T, s *suite) {
	x := s.open(t)
	r, out, errs := x.start(t, x.python(t, attemptsOnDemand))
	if !soon(t, patience, func() bool { return out.String() == s.closed()+"\n" }) {
		t.Fatalf("the program said %q, %q", out.String(), errs.String())
	}
	first := x.network(t)
	next := func(port string) {
		t.Helper()
		if err := x.Files().Put(t.Context(), "go", []byte(port), true); err != nil {
			t.Fatal(err)
		}
	}
	next("80")
	if !soon(t, patience, func() bool { return strings.HasSuffix(out.String(), "1.2.3.4:80\n") }) {
		t.Fatalf("the program said %q, %q", out.String(), errs.String())
	}
	next("6432")
	if !soon(t, patience, func() bool { return strings.HasSuffix(out.String(), "ECONNREFUSED\n") }) {
		t.Fatalf("the program said %q, %q", out.String(), errs.String())
	}
	if second := x.network(t, 6432); second != first {
		t.Error("a second call returned another network")
	}
	next("6432")
	if !soon(t, patience, func() bool { return strings.HasSuffix(out.String(), "1.2.3.4:6432\n") }) {
		t.Fatalf("the program said %q, %q", out.String(), errs.String())
	}
	if err := x.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	_, _ = r.Wait(t.Context())
}

// attemptsOnDemand connects to the port that a file names.
const attemptsOnDemand = `
import errno, os, socket, time
port = 80
while True:
    try:
        s = socket.create_connection(("1.2.3.4", port), 10)
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        print(b"".join(iter(lambda: s.recv(4096), b"")).decode().split("\r\n\r\n")[-1].strip(), flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
    while not os.path.exists("go"): time.sleep(0.01)
    port = int(open("go").read())
    os.remove("go")
`

func networkTaken(t *testing.T, s *suite) {
	x := s.open(t)
	has := func(port int) (release func()) {
		t.Helper()
		r, out, errs := x.start(t, x.python(t, fmt.Sprintf("import socket, time\ns = socket.create_server(('0.0.0.0', %d))\nprint('up', flush=True)\ntime.sleep(60)", port)))
		if !soon(t, patience, func() bool { return out.String() == "up\n" }) {
			t.Fatalf("the program said %q, %q", out.String(), errs.String())
		}
		return func() {
			t.Helper()
			if err := r.Signal(t.Context(), 9); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	refused := func(ports ...int) {
		t.Helper()
		_, err := x.Sandbox.(backend.Networker).Network(t.Context(), ports)
		if got := sandboxmcp.CodeOf(err); got != sandboxmcp.CodeBackendUnavailable || !strings.Contains(err.Error(), fmt.Sprint("port ", ports[len(ports)-1])) {
			t.Errorf("Network failed with %v, want %s and the port", err, sandboxmcp.CodeBackendUnavailable)
		}
	}
	release := has(7432)
	if _, err := x.Sandbox.(backend.Networker).Network(t.Context(), []int{7432}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeBackendUnavailable {
		t.Errorf("Network failed with %v, want %s", err, sandboxmcp.CodeBackendUnavailable)
	}
	x.attempt(t, [][2]string{{"tcp 1.2.3.4 80", s.closed()}}) // nothing is open
	release()
	x.network(t)
	release = has(5432)
	refused(5432)
	x.attempt(t, [][2]string{{"tcp 1.2.3.4 80", "1.2.3.4:80"}}) // the network that was opened before stays open
	release()
	x.network(t, 5432)
	x.attempt(t, [][2]string{{"tcp 1.2.3.4 5432", "1.2.3.4:5432"}})
}

func networkNonsense(t *testing.T, s *suite) {
	x := s.open(t)
	many := []int{}
	for p := range 70 {
		many = append(many, 7000+p)
	}
	for _, ports := range [][]int{{0}, {-1}, {65536}, {53}, {backend.ProxyPort}, many} {
		if _, err := x.Sandbox.(backend.Networker).Network(t.Context(), ports); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
			t.Errorf("ports %v: %v, want %s", ports, err, sandboxmcp.CodeInvalidArgument)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := x.Sandbox.(backend.Networker).Network(ctx, nil); err != nil && sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
		t.Errorf("with a context that has ended: %v", err)
	}
	n := x.network(t, many[:30]...)
	if got := len(n.TCP); got != 32 {
		t.Errorf("%d ports are open, want 32", got)
	}
	if _, err := x.Sandbox.(backend.Networker).Network(t.Context(), many[30:31]); sandboxmcp.CodeOf(err) != sandboxmcp.CodeInvalidArgument {
		t.Errorf("one port more than can be: %v, want %s", err, sandboxmcp.CodeInvalidArgument)
	}
	x.attempt(t, [][2]string{{"tcp 1.2.3.4 7029", "1.2.3.4:7029"}, {"tcp 1.2.3.4 7030", "ECONNREFUSED"}})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func networkTold(t *testing.T, s *suite) {
	const none, egress = sandboxmcp.WallNoNetwork, sandboxmcp.WallEgress
	x := s.open(t)
	for _, want := range []string{none, egress} {
		iso, err := x.Isolation(t.Context())
		must(t, err)
		if got := slices.Contains(iso.Walls, none); got != (want == none) {
			t.Errorf("%q is told: %v", none, got)
		}
		if got := slices.Contains(iso.Walls, egress); got != (want == egress) {
			t.Errorf("%q is told: %v", egress, got)
		}
		if want == none {
			x.network(t)
		}
	}
}

// networkRefuse: a sandbox without a network has none of its sockets before a program makes one.
// Then the program waits until they are there, its attempts are refused and told, and a network can
// still be opened.
func networkRefuse(t *testing.T, s *suite) {
	x := s.open(t)
	net := x.Sandbox.(backend.Networker)
	calls := make(chan *backend.Network, 2)
	if !net.BeforeSockets(func() {
		n, err := net.Refuse(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Errorf("Refuse: got %v, want nil", err)
		}
		calls <- n
	}) {
		t.Skip("the backend does not know when programs make sockets")
	}
	wall := func(want string) {
		t.Helper()
		iso, err := x.Isolation(t.Context())
		must(t, err)
		for _, w := range []string{sandboxmcp.WallNoNetwork, sandboxmcp.WallTold, sandboxmcp.WallToldNames, sandboxmcp.WallEgress} {
			if got := slices.Contains(iso.Walls, w); got != (w == want) {
				t.Errorf("the wall %q: got %v, want only %q", w, got, want)
			}
		}
	}
	if e := x.run(t, x.python(t, "import socket\nsocket.socketpair()\nprint('quiet')")); e.Out != "quiet\n" || len(calls) > 0 {
		t.Errorf("a program without network sockets: got %q and %d calls, want none", e.Out, len(calls))
	}
	wall(sandboxmcp.WallNoNetwork)
	attempts := [][2]string{{"tcp 1.2.3.4 80", "ECONNREFUSED"}, {"tcp 2001:db8::7 443", "ENETUNREACH"}, {"udp 9.9.9.9 443", "ECONNREFUSED"}, {"tcp 127.0.0.1 80", "ECONNREFUSED"}}
	x.attempt(t, attempts)
	if len(calls) != 1 {
		t.Fatalf("the function was called %d times, want once", len(calls))
	}
	wall(sandboxmcp.WallTold)
	n := <-calls
	if len(n.TCP) != 0 || n.Proxy == nil || len(n.DNS) == 0 {
		t.Errorf("got %+v, want DNS and the proxy alone", n)
	}
	var told []string
	list, _ := n.Refused()
	for _, r := range list {
		told = append(told, r.Network+" "+r.Address.Addr().String()+" "+fmt.Sprint(r.Address.Port()))
	}
	slices.Sort(told)
	if want := []string{"tcp 1.2.3.4 80", "udp 9.9.9.9 443"}; !slices.Equal(told, want) {
		t.Errorf("told: got %q, want %q", told, want)
	}
	x.attempt(t, attempts)
	if len(calls) != 0 {
		t.Error("the function was called again, want once for each sandbox")
	}
	x.network(t)
	wall(sandboxmcp.WallEgress)
	x.attempt(t, [][2]string{{"tcp 1.2.3.4 80", "1.2.3.4:80"}, {"tcp 127.0.0.1 312", "127.0.0.1:312"}})
	if net.BeforeSockets(func() {}) {
		t.Error("BeforeSockets after a socket was made: got true, want false")
	}
}

func networkRefused(t *testing.T, s *suite) {
	x := s.open(t)
	n := x.network(t)
	if n.Refused == nil {
		t.Skip("the backend does not know them")
	}
	x.attempt(t, [][2]string{
		{"tcp 1.2.3.4 80", "1.2.3.4:80"},
		{"tcp 198.18.0.5 8443", "ECONNREFUSED"},
		{"tcp 198.18.0.5 8443", "ECONNREFUSED"},
		{"udp 9.9.9.9 443", "ECONNREFUSED"},
		{"tcp 2001:db8::7 22", "ENETUNREACH"},
		{"udp 2001:db8::8 123", "ENETUNREACH"},
		{"tcp 127.0.0.1 9999", "ECONNREFUSED"},
		{"udp 127.0.0.1 9999", "ECONNREFUSED"},
		{"tcp ::1 9999", "ECONNREFUSED"},
		{"udp ::1 9999", "ECONNREFUSED"},
	})
	told := func() string {
		list, lost := n.Refused()
		return fmt.Sprint(list, lost)
	}
	if got, want := told(), "[{tcp 198.18.0.5:8443 2} {udp 9.9.9.9:443 1}] 0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := told(); got != "[] 0" {
		t.Errorf("asked again it tells %s", got)
	}
	e := x.run(t, x.python(t, `
import socket
for i in range(3000):
    s = socket.socket()
    try: s.connect(("1.2.%d.%d" % (i // 250, i % 250), 9))
    except OSError: pass
    s.close()
`))
	if e.Exit != (backend.Exit{}) {
		t.Errorf("the program ended with %+v, %q", e.Exit, e.Err)
	}
	must(t, x.Kill(t.Context()))
	list, lost := n.Refused() // refusals before the end
	if len(list) != 64 || len(list)+lost != 3000 {
		t.Errorf("of 3000 refusals %d are told and %d are lost", len(list), lost)
	}
}
