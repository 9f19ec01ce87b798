package kube_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/kube"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// logTo writes a log to a test.
type logTo struct{ t testing.TB }

func (l logTo) Write(p []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// newKube returns the backend of the cluster that KUBECONFIG_E2E names. Other variables of these tests are
//
//	KUBE_NAMESPACE        of the pods, at the level restricted (sandboxes)
//	KUBE_NAMESPACE_USERS  of pods with user namespaces, at the level privileged
//	KUBE_IMAGE            with the agent, Python, Node.js, bash and curl
//	KUBE_POLICY           1: a policy closes the network of pods; KUBE_OPEN: none does
//	KUBE_API              IP address and port of the API server, which pods may not reach
//	KUBE_NODE_KILL, KUBE_NODE_START  commands that get the name of a node
func newKube(t testing.TB, change ...func(*kube.Config)) *kube.Backend {
	t.Helper()
	config := os.Getenv("KUBECONFIG_E2E")
	testkit.Need(t, "kube", config != "", "KUBECONFIG_E2E names no cluster")
	namespace, image := os.Getenv("KUBE_NAMESPACE"), os.Getenv("KUBE_IMAGE")
	if namespace == "" {
		namespace = "sandboxes"
	}
	if image == "" {
		image = "docker.io/sandboxmcp/sandbox:kube"
	}
	cfg := kube.Config{Kubeconfig: config, Namespace: namespace, Image: image, Connect: kube.ConnectPod}
	if os.Getenv("KUBE_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	for _, f := range change {
		f(&cfg)
	}
	b := kube.New(cfg)
	t.Cleanup(func() {
		if err := b.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return b
}

func spec(id string) backend.Spec {
	return backend.Spec{ID: id, MinTier: sandboxmcp.TierL1, MemoryBytes: 256 << 20, CPUCores: 1, MaxTasks: 64, CPUTime: time.Minute, WorkBytes: 32 << 20, WorkInodes: 2000, TempBytes: 16 << 20}
}

func open(t testing.TB, b backend.Backend, s backend.Spec) backend.Sandbox {
	t.Helper()
	sb, err := b.Open(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sb.Close(context.WithoutCancel(t.Context())) })
	return sb
}

// output runs a shell script and returns what it printed.
func output(t testing.TB, sb backend.Sandbox, script string) string {
	t.Helper()
	var out, errs bytes.Buffer
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err = r.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e != (backend.Exit{}) {
		t.Fatalf("%q: got %+v %s", script, e, errs.String())
	}
	return out.String()
}

// TestPodRunsPrograms: a program runs in a pod of the restricted profile, and the walls that are reported were
// observed.
func TestPodRunsPrograms(t *testing.T) {
	needClosed(t)
	sb := open(t, newKube(t), spec("runs"))
	got := output(t, sb, "pwd; ls /run; touch /x 2>/dev/null || echo read-only; touch /run/program/x 2>/dev/null || echo kept; echo 1 2>/dev/null >/dev/termination-log || echo shut; echo data > file; cat file")
	if want := "/mnt/data\nbridge\nprogram\nrelay\nread-only\nkept\nshut\ndata\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	iso, err := sb.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no capabilities", "not the host's root", "no_new_privs", "seccomp", "read-only root", "disk quota", sandboxmcp.WallNoNetwork, "task limit (rlimit)"} {
		if !slices.Contains(iso.Walls, want) {
			t.Errorf("got %v, want %q", iso.Walls, want)
		}
	}
	if u, err := sb.Usage(t.Context()); err != nil || u.PeakMemory == 0 || u.CPU == 0 {
		t.Errorf("got %+v %v, want memory and time", u, err)
	}
}

// TestPodsDoNotReachTheirLink: each network interface gives itself an IPv6 address for its link. The policies of some network
// plugins do not cover these addresses. A program in a pod reaches neither other pods of its node nor the kubelet there.
func TestPodsDoNotReachTheirLink(t *testing.T) {
	needClosed(t)
	const program = `
import socket
for family, address in ((socket.AF_INET6, ("ff02::1", 9, 0, 2)), (socket.AF_INET6, ("::1", 9)), (socket.AF_INET, ("224.0.0.1", 9))):
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.sendto(b"x", address)
            s.sendto(b"x", address)  # the error of the first
        print("sent to", address)
    except OSError as e:
        print(e.errno)
`
	// EAFNOSUPPORT for IPv6.
	if got := output(t, open(t, newKube(t), spec("link")), "python3 -c '"+program+"'"); !strings.HasPrefix(got, "97\n97\n") {
		t.Errorf("got %q, want that each is refused", got)
	}
}

// TestPodsAnswerOtherPods: others can try whether they reach a pod. Its programs cannot take the port.
func TestPodsAnswerOtherPods(t *testing.T) {
	needClosed(t)
	sb := open(t, newKube(t), spec("answers"))
	at := kube.AddressOf(sb)
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("got %d bytes and %v, want the end", n, err)
	}
	_, port, _ := net.SplitHostPort(at)
	if got := output(t, sb, `python3 -c 'import socket; socket.socket().bind(("0.0.0.0", `+port+`))' 2>&1 | tail -n 1`); !strings.Contains(got, "Errno 98") {
		t.Errorf("got %q, want that the port is taken", got)
	}
}

// needClosed skips a test in a cluster whose pods have an open network. KUBE_POLICY says that it is closed.
func needClosed(t testing.TB) {
	t.Helper()
	testkit.Need(t, "kube", os.Getenv("KUBECONFIG_E2E") != "", "KUBECONFIG_E2E names no cluster")
	testkit.Need(t, "kube-policy", os.Getenv("KUBE_POLICY") != "", "no NetworkPolicy closes the pods of the cluster")
}

// TestSignals: a signal reaches the process, and its exit says so.
func TestSignals(t *testing.T) {
	needClosed(t)
	sb := open(t, newKube(t), spec("signals"))
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sleep", "1000"}, Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if err = r.Signal(t.Context(), 15); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Wait(t.Context()); err != nil || e.Signal != 15 || e.Lost {
		t.Errorf("got %+v %v, want signal 15", e, err)
	}
}

// TestEgress: programs reach what the server's listeners accept by the proxy variables, and nothing at
// addresses. The network of the pod stays closed.
func TestEgress(t *testing.T) {
	needClosed(t)
	sb := open(t, newKube(t), spec("egress"))
	n, err := sb.(backend.Networker).Network(t.Context(), []int{8931}) // a host may also be open at the agent's port
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := n.Proxy.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				line := make([]byte, 512)
				k, _ := c.Read(line)
				first, _, _ := strings.Cut(string(line[:k]), "\r\n")
				_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nasked: "+first+"\n")
			}()
		}
	}()
	var out bytes.Buffer
	r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/usr/bin/curl", "-s", "http://example.com/x"}, Env: n.Environ(), Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Wait(t.Context())
	if err != nil || e.Code != 0 || r.Drain(t.Context()) != nil {
		t.Fatalf("got %+v %v", e, err)
	}
	if got, want := out.String(), "asked: GET http://example.com/x HTTP/1.1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	iso, err := sb.Isolation(t.Context())
	if err != nil || !slices.Contains(iso.Walls, sandboxmcp.WallEgress) {
		t.Errorf("got %v %v, want the wall %q", iso.Walls, err, sandboxmcp.WallEgress)
	}
	if server := os.Getenv("KUBE_API"); server != "" {
		if got := output(t, sb, "curl -s -m 3 --noproxy '*' -k https://"+server+"/ >/dev/null && echo reached || echo closed"); got != "closed\n" {
			t.Errorf("got %q, want closed", got)
		}
	}
}

// TestOpenIsRefusedWithoutAPolicy: where a pod reaches what it may not, no sandbox is opened, and at tier L0 the
// wall is not reported.
func TestOpenIsRefusedWithoutAPolicy(t *testing.T) {
	testkit.Need(t, "kube", os.Getenv("KUBECONFIG_E2E") != "", "KUBECONFIG_E2E names no cluster")
	testkit.Need(t, "kube-open", os.Getenv("KUBE_OPEN") != "", "the pods of the cluster are closed")
	b := newKube(t)
	if _, err := b.Open(t.Context(), spec("refused")); sandboxmcp.CodeOf(err) != sandboxmcp.CodeIsolationUnavailable {
		t.Errorf("got %v, want %s", err, sandboxmcp.CodeIsolationUnavailable)
	}
	s := spec("accepted")
	s.MinTier = sandboxmcp.TierL0
	iso, err := open(t, b, s).Isolation(t.Context())
	if err != nil || slices.Contains(iso.Walls, sandboxmcp.WallNoNetwork) || !slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.HasPrefix(w, "network: ") }) {
		t.Errorf("got %+v %v, want no wall of the network, and that weak says so", iso, err)
	}
}

// TestManySandboxes: a hundred sandboxes live at a time, each in a pod of its own.
func TestManySandboxes(t *testing.T) {
	needClosed(t)
	if testing.Short() {
		t.Skip("it starts a hundred pods")
	}
	const many, atOnce = 100, 10
	b := newKube(t)
	turn := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	var mu sync.Mutex
	pods := map[string]bool{}
	for i := range many {
		all.Go(func() {
			turn <- struct{}{}
			s := spec(fmt.Sprintf("many-%d", i))
			s.MemoryBytes, s.WorkBytes, s.TempBytes, s.CPUCores = 48<<20, 4<<20, 4<<20, 0.5
			sb, err := b.Open(t.Context(), s)
			<-turn
			if err != nil {
				t.Errorf("%s: %v", s.ID, err)
				return
			}
			if got := output(t, sb, "ls; echo "+s.ID+" >mark; cat mark"); got != s.ID+"\n" {
				t.Errorf("%s: got %q", s.ID, got)
			}
			_, uid, _ := kube.PodNameOf(sb)
			mu.Lock()
			defer mu.Unlock()
			pods[uid] = true
		})
	}
	all.Wait()
	if len(pods) != many {
		t.Errorf("got %d pods, want %d", len(pods), many)
	}
}

// TestOwnUsers: in a pod with a user namespace the relay is root of it, and programs are another user. The namespace
// KUBE_NAMESPACE_USERS admits such pods.
func TestOwnUsers(t *testing.T) {
	needClosed(t)
	space := os.Getenv("KUBE_NAMESPACE_USERS")
	testkit.Need(t, "kube-users", space != "", "KUBE_NAMESPACE_USERS names no namespace")
	sb := open(t, newKube(t, func(c *kube.Config) { c.OwnUsers, c.Namespace = true, space }), spec("users"))
	if got, want := output(t, sb, "id -u; touch /run/x /run/program/x 2>/dev/null || echo kept; kill -9 1 2>/dev/null || echo refused"), "1000\nkept\nrefused\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	iso, err := sb.Isolation(t.Context())
	if err != nil || !slices.Contains(iso.Walls, "user namespace") || slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.HasPrefix(w, "user: ") || strings.HasPrefix(w, "egress: ") }) {
		t.Errorf("got %+v %v, want a user namespace, and names that are represented by addresses", iso, err)
	}
	n, err := sb.(backend.Networker).Network(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		c, err := n.TCP[80].Accept()
		if err == nil {
			_, _ = c.Read(make([]byte, 512)) // a close with bytes that were not read would reset the connection
			_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nfrom "+c.LocalAddr().String())
			_ = c.Close()
		}
	}()
	if got, want := output(t, sb, "curl -s http://198.18.0.77/"), "from 198.18.0.77:80"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
