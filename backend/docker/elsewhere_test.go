package docker_test

import (
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/docker"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
)

// elsewhere returns the TCP address of the test's engine. The server cannot know that it is on this machine.
func elsewhere(t testing.TB) string {
	t.Helper()
	socket := strings.TrimPrefix(engineHost(t), "unix://")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go forward(c, socket)
		}
	}()
	return "tcp://" + l.Addr().String()
}

// newElsewhere returns the backend of runc of an engine elsewhere.
func newElsewhere(t testing.TB, host string) *docker.Relayed {
	t.Helper()
	log := slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b, ok := docker.For(docker.Config{Process: process.Config{Logger: log, MinTier: sandboxmcp.TierL1}, Host: host, Dir: t.TempDir(), Logger: log}).(*docker.Relayed)
	if !ok {
		t.Fatal("got the backend of an engine on this machine")
	}
	return b
}

// TestEngineElsewhere: an engine that is reached by TCP shows no directory of this machine. Its
// containers begin with a shell of the image, which becomes the relay.
func TestEngineElsewhere(t *testing.T) {
	host := elsewhere(t)
	for name, c := range map[string]struct {
		b    func() *docker.Relayed
		tier sandboxmcp.Tier
	}{
		gvisor: {func() *docker.Relayed { return newRelayed(t, func(c *docker.Config) { c.Host = host }) }, sandboxmcp.TierL4},
		"runc": {func() *docker.Relayed { return newElsewhere(t, host) }, sandboxmcp.TierL1},
	} {
		t.Run(name, func(t *testing.T) {
			b := c.b()
			defer func() { _ = b.Close(t.Context()) }()
			s := spec("elsewhere")
			s.MinTier = c.tier
			sb := open(t, b, s)
			if got := output(t, sb, "pwd; id -u"); got != "/mnt/data\n1000\n" {
				t.Errorf("got %q, want the working directory and 1000", got)
			}
			iso, err := sb.Isolation(t.Context())
			if err != nil || iso.Tier != c.tier || !slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.Contains(w, "cannot be read back") }) {
				t.Errorf("got %+v, %v, want %s, and that limits were not read back", iso, err, c.tier)
			}
			t.Logf("%+v", iso)
		})
	}
}

// TestConformanceElsewhere runs the suite in containers of runc of an engine elsewhere.
func TestConformanceElsewhere(t *testing.T) {
	host := elsewhere(t)
	backendtest.Run(t, backendtest.Options{
		New:    func(t testing.TB) backend.Backend { t.Helper(); return newElsewhere(t, host) },
		Python: "/usr/bin/python3", Node: "/usr/bin/node", Bash: "/bin/bash", Curl: "/usr/bin/curl",
		Tier: sandboxmcp.TierL1, Contained: true, HeldLimits: true, LeastTasks: 64, Closed: "ECONNREFUSED", Differ: differElsewhere, Lacks: lacksElsewhere,
	})
}

var differElsewhere = map[string]string{}

// lacksElsewhere lists laws that containers of an engine elsewhere do not keep.
var lacksElsewhere = map[string]string{
	"OpenShowsReadOnlyDirs":        "no directory of this machine is shown",
	"OpenShowsADirectoryElsewhere": "as before",
	"LocksAreCounted":              "the objects are of the engine's machine, which the server does not see",
	"ConnectionsAreCounted":        "as before",
	"udp":                          "datagrams that nothing reads are memory that the kernel does not count; weak says so",
	"undone":                       "as before",
	"corked":                       "as before",
}

// forward connects a connection with a socket until both directions have ended.
func forward(c net.Conn, socket string) {
	defer func() { _ = c.Close() }()
	up, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	defer func() { _ = up.Close() }()
	done := make(chan struct{}, 2)
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if w, ok := to.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite()
		}
		done <- struct{}{}
	}
	go pass(up, c)
	pass(c, up)
	<-done
}
