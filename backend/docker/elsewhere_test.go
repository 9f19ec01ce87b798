package docker_test

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/backend/backendtest"
	"github.com/sandboxmcp/sandboxmcp/backend/docker"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

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
	host := testkit.OverTCP(t, engineHost(t))
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
			if got := output(t, sb, "pwd; test $(id -u) -gt 1000 && echo apart"); got != "/mnt/data\napart\n" {
				t.Errorf("got %q, want the working directory and a user of its own", got)
			}
			iso, err := sb.Isolation(t.Context())
			if err != nil || iso.Tier != c.tier || !slices.ContainsFunc(iso.Weak, func(w string) bool { return strings.Contains(w, "cannot be read back") }) {
				t.Errorf("got %+v, %v, want %s, and that limits were not read back", iso, err, c.tier)
			}
			t.Logf("%+v", iso)
		})
	}
}

// TestEngineBehindTLS: the server and the engine know each other by certificates. Without them the engine is
// not used.
func TestEngineBehindTLS(t *testing.T) {
	dir, config := testkit.Certificates(t)
	host := testkit.OverTLS(t, engineHost(t), config)
	for name, c := range map[string]struct {
		certs string
		want  sandboxmcp.Code
	}{"certificates": {dir, ""}, "none": {"", sandboxmcp.CodeDockerUnavailable}, "a directory without": {t.TempDir(), sandboxmcp.CodeDockerUnavailable}} {
		b := docker.NewRelayed(docker.Config{Process: process.Config{MinTier: sandboxmcp.TierL1}, Host: host, Certs: c.certs, Dir: t.TempDir()})
		sb, err := b.Open(t.Context(), spec("tls"))
		if got := sandboxmcp.CodeOf(err); got != c.want {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
		if err == nil {
			if got := output(t, sb, "echo ran"); got != "ran\n" {
				t.Errorf("%s: got %q, want ran", name, got)
			}
		}
		if err := b.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestConformanceElsewhere runs the suite in containers of runc of an engine elsewhere. With -short it leaves
// out what takes longest.
func TestConformanceElsewhere(t *testing.T) {
	lacks := maps.Clone(lacksElsewhere)
	if testing.Short() {
		for _, name := range longOfGVisor {
			lacks[name] = "it takes long, and runs without -short"
		}
	}
	host := testkit.OverTCP(t, engineHost(t))
	backendtest.Run(t, backendtest.Options{
		New:    func(t testing.TB) backend.Backend { t.Helper(); return newElsewhere(t, host) },
		Python: "/usr/bin/python3", Node: "/usr/bin/node", Bash: "/bin/bash", Curl: "/usr/bin/curl",
		Tier: sandboxmcp.TierL1, Contained: true, HeldLimits: true, LeastTasks: 64, Closed: "ECONNREFUSED", Differ: differElsewhere(), Lacks: lacks,
	})
}

// differElsewhere returns what attacks meet in a container of an engine elsewhere and not in a jail: what they
// meet in a container of an engine here, and networks of the relay.
func differElsewhere() map[string]string {
	all := maps.Clone(differ)
	for attempt, outcome := range differOfGVisor {
		if strings.HasPrefix(attempt, "c0") {
			all[attempt] = outcome
		}
	}
	// The kernel of the engine's machine dumps no memory: the limit of dumps is 1 byte, and cannot be raised.
	all["a24-status.py dumped"] = "00000033"
	all["c01-python-network.py fastopen"] = "ECONNREFUSED"
	delete(all, "c01-python-network.py fastopen net")
	delete(all, "a17-foreign-tables.py x32") // the engine's usual filter
	delete(all, "b01-other-files.py siblings")
	return all
}

// lacksElsewhere lists laws that containers of an engine elsewhere do not keep.
var lacksElsewhere = map[string]string{
	"OpenShowsReadOnlyDirs":               "no directory of this machine is shown",
	"OpenShowsADirectoryElsewhere":        "as before",
	"CPUQuotaHolds":                       "the engine does not tell the quota; weak says so",
	"TimeThatNobodyWaitsForIsUsed":        "the relay sees the time of processes that it or a program has waited for",
	"LocksAreCounted":                     "the objects are of the engine's machine, which the server does not see",
	"TablesWithoutMemoryAreCounted":       "the objects are of the engine's machine, which the server does not see",
	"MappingsAreCounted":                  "as before",
	"ConnectionsAreCounted":               "as before",
	"PortsAreCounted":                     "as before",
	"WaitingSendersAreCounted":            "as before",
	"SocketsAreCounted":                   "as before",
	"DirectoriesAreCounted":               "as before",
	"udp":                                 "datagrams that nothing reads are memory that the kernel does not count; weak says so",
	"undone":                              "as before",
	"corked":                              "as before",
	"EveryAddressLeadsToTheListeners":     "the engine turns IPv6 off",
	"OtherPortsAndProtocolsLeadNowhere":   "as before",
	"NoProgramHasTheListenersPorts":       "as before",
	"OwnServersAreReached":                "as before",
	"NamesAreAnsweredFromTheAddressAsked": "the resolver is at 127.0.0.1 alone, as resolv.conf says",
}

// TestKillsElsewhereAreOfOneRun: a run that memory has ended many times leaves nothing for the next one.
func TestKillsElsewhereAreOfOneRun(t *testing.T) {
	b := newElsewhere(t, testkit.OverTCP(t, engineHost(t)))
	defer func() { _ = b.Close(t.Context()) }()
	s := spec("kills")
	s.MemoryBytes = 64 << 20
	sb := open(t, b, s)
	output(t, sb, "for i in 1 2 3 4 5 6 7 8; do python3 -c 'bytearray(200 << 20)'; done")
	before, err := sb.Usage(t.Context())
	if err != nil || before.OOMKills < 8 {
		t.Errorf("got %+v, %v, want 8 kills", before, err)
	}
	output(t, sb, "exit 3")
	if after, err := sb.Usage(t.Context()); err != nil || after.OOMKills != before.OOMKills {
		t.Errorf("after another program: got %d kills, %v, want %d as before", after.OOMKills, err, before.OOMKills)
	}
}
