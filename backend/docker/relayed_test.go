package docker_test

import (
	"log/slog"
	"maps"
	"os"
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

const gvisor = "runsc"

// newRelayed returns the backend of gVisor, if the engine of the test offers it.
func newRelayed(t testing.TB, change ...func(*docker.Config)) *docker.Relayed {
	t.Helper()
	host := engineHost(t)
	testkit.Need(t, gvisor, slices.Contains(strings.Split(os.Getenv("ENGINE_RUNTIMES"), ","), gvisor), "the engine has no runsc")
	log := slog.New(slog.NewTextHandler(logTo{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg := docker.Config{Process: process.Config{Logger: log}, Host: host, Dir: t.TempDir(), Runtime: gvisor, Logger: log}
	for _, f := range change {
		f(&cfg)
	}
	return docker.NewRelayed(cfg)
}

// TestGVisorIsAKernelOfItsOwn: a program runs in it, and the walls that are reported were seen.
func TestGVisorIsAKernelOfItsOwn(t *testing.T) {
	b := newRelayed(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb := open(t, b, spec("gvisor"))
	if got := output(t, sb, "pwd; ls /run; test $(id -u) -gt 1000 && echo apart; touch /x 2>/dev/null || echo read-only; touch /run/program/x 2>/dev/null || echo kept"); got != "/mnt/data\nbridge\nprogram\napart\nread-only\nkept\n" {
		t.Errorf("got %q", got)
	}
	iso, err := sb.Isolation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", iso)
	if iso.Tier != sandboxmcp.TierL4 {
		t.Errorf("got tier %s, want L4", iso.Tier)
	}
	rows, err := b.Interpreters(t.Context())
	t.Logf("%+v %v", rows, err)
}

var _ backend.Backend = (*docker.Relayed)(nil)

// TestConformanceOfGVisor runs the suite in containers of runsc. With -short it leaves out what takes
// longest, because a container takes half a second to start, and these start hundreds.
func TestConformanceOfGVisor(t *testing.T) {
	lacks := maps.Clone(lacksOfGVisor)
	if testing.Short() {
		for _, name := range longOfGVisor {
			lacks[name] = "it takes long, and runs without -short"
		}
	}
	backendtest.Run(t, backendtest.Options{
		New:    func(t testing.TB) backend.Backend { t.Helper(); return newRelayed(t) },
		Python: "/usr/bin/python3", Node: "/usr/bin/node", Bash: "/bin/bash", Curl: "/usr/bin/curl",
		Tier: sandboxmcp.TierL4, HeldLimits: true, LeastTasks: 16, Closed: "ECONNREFUSED", Differ: differOfGVisor, Lacks: lacks,
	})
}

// longOfGVisor lists what runs only without -short.
var longOfGVisor = []string{
	"FilesListIsBounded", "WatchesAreBounded", "ProgramsGoOnWithoutWhatIsRefused", "OpenIsTakenDownWhenItsContextEnds", "FloodIsCarriedWhole",
	"CPUShareHoldsForProgramsThatContinueThemselves", "ChangesOfFilesAreReported", "StreamsOpenByName",
	"NetworkLeavesNothing", "FloodOfConnectionsEnds",
	"c02-node-network.js", "b06-starved.py", "b03-kill-others.py",
}

// lacksOfGVisor lists laws that containers of gVisor do not keep, or that this machine cannot see.
var lacksOfGVisor = map[string]string{
	"OpenShowsADirectoryElsewhere":        "gVisor has no /proc/self/mountstats, which the law reads; TestTreesInGVisor shows a directory",
	"KillEndsEverything":                  "the processes are of gVisor's kernel, and cannot be counted from here; TestGVisorEndsEverything counts them inside",
	"KillAndClearEndDeafPrograms":         "as before",
	"KillAndClearEndAllOrFail":            "as before",
	"SignalReachesTheProcessAlone":        "as before",
	"TasksAreCountedPerSandbox":           "gVisor bounds no number of tasks; what they need of this machine is bounded",
	"WeakTellsOfKernelObjects":            "the objects are memory of gVisor's kernel, which is limited as a whole",
	"KillsAreCounted":                     "memory that runs out ends the whole container, which tells no more of it",
	"ConnectionBuffersAreSmall":           "gVisor has no such parameters; buffers are memory of its kernel, which is limited as a whole",
	"LocksAreCounted":                     "as before",
	"TablesWithoutMemoryAreCounted":       "as before",
	"MappingsAreCounted":                  "as before",
	"MappingsAreMemory":                   "as before",
	"BuffersAreMemory":                    "as before",
	"ConnectionsAreCounted":               "as before",
	"PortsAreCounted":                     "as before",
	"WaitingSendersAreCounted":            "as before",
	"SocketsAreCounted":                   "as before",
	"DirectoriesAreCounted":               "as before",
	"EveryAddressLeadsToTheListeners":     "gVisor's loopback has no other address of IPv6; TestNetworkOfGVisor reaches those of IPv4",
	"NoProgramHasTheListenersPorts":       "gVisor has no SO_REUSEPORT for another user's port and no SO_BINDTODEVICE, which the law tries",
	"OwnServersAreReached":                "it needs IPv6",
	"NamesAreAnsweredFromTheAddressAsked": "the resolver is at 127.0.0.1 alone, as resolv.conf says",
	"OtherPortsAndProtocolsLeadNowhere":   "it needs IPv6, and wants that the server's ports are free before a network is opened",
	"corked":                              "gVisor refuses to cork datagrams",
	"d02-tasks.py":                        "see TasksAreCountedPerSandbox",
	"probes":                              "gVisor lists the numbers of the first process's descriptors; TestProgramsDoNotReachTheRelay opens none",
	"a24-view":                            "it reads of Landlock and of the mounts of a jail",
	"a24-view.py":                         "as before",
	"blocks of sparse files":              "gVisor counts the holes of a file in memory as blocks",
}

// TestGVisorEndsEverything: Clear and Kill end programs that ignore signals, that left their session or
// whose parent has ended. The relay's own list of processes says so.
func TestGVisorEndsEverything(t *testing.T) {
	b := newRelayed(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb := open(t, b, spec("ends"))
	const storm = `trap "" TERM INT HUP; for i in 1 2 3 4 5; do (setsid sh -c 'trap "" TERM; sleep 1000' &) ; done; echo up; sleep 1000`
	begin := func() backend.Running {
		out := make(chan struct{}, 1)
		r, err := sb.Start(t.Context(), backend.Process{Argv: []string{"/bin/sh", "-c", storm}, Env: []string{"PATH=/usr/bin:/bin"}, Stdout: signalled(out)})
		if err != nil {
			t.Fatal(err)
		}
		<-out
		return r
	}
	const count = "set -- /proc/[0-9]*; echo $#"
	before := output(t, sb, count)
	r := begin()
	if err := sb.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Wait(t.Context()); err != nil || e.Lost || e.Signal != 9 {
		t.Errorf("after Clear: got %+v %v, want signal 9", e, err)
	}
	if after := output(t, sb, count); after != before {
		t.Errorf("got %s processes, want %s", after, before)
	}
	r = begin()
	if err := sb.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Wait(t.Context()); err != nil || !e.Lost {
		t.Errorf("after Kill: got %+v %v, want that it was lost", e, err)
	}
}

// signalled is a writer that says that something was written.
type signalled chan struct{}

func (s signalled) Write(p []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default:
	}
	return len(p), nil
}

// TestProgramsDoNotReachTheRelay: a program cannot open the stream of the container's first process,
// read its memory or signal it.
func TestProgramsDoNotReachTheRelay(t *testing.T) {
	b := newRelayed(t)
	defer func() { _ = b.Close(t.Context()) }()
	sb := open(t, b, spec("reach"))
	const script = `for f in /proc/1/fd/*; do ( : >"$f" ) 2>/dev/null && echo "wrote $f"; ( : <"$f" ) 2>/dev/null && echo "read $f"; done
( : <>/proc/1/mem ) 2>/dev/null && echo memory
kill -9 1 2>/dev/null && echo killed
echo done`
	if got := output(t, sb, script); got != "done\n" {
		t.Errorf("got %q, want nothing but done", got)
	}
}

// TestTreesInGVisor: a directory of this machine is shown, and cannot be written to.
func TestTreesInGVisor(t *testing.T) {
	b := newRelayed(t)
	defer func() { _ = b.Close(t.Context()) }()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/word", []byte("shown"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := spec("trees")
	s.Trees = []backend.Tree{{Host: dir, Inside: backend.PackageDir + "/set"}}
	if got := output(t, open(t, b, s), "cat /opt/sandboxmcp/set/word; touch /opt/sandboxmcp/set/x 2>/dev/null || echo ' kept'"); got != "shown kept\n" {
		t.Errorf("got %q, want shown kept", got)
	}
}

// TestMissingRuntimeIsNamed: an engine without the runtime gives an error that says what helps.
func TestMissingRuntimeIsNamed(t *testing.T) {
	b := newRelayed(t, func(c *docker.Config) { c.Runtime = "kata-runtime" })
	defer func() { _ = b.Close(t.Context()) }()
	_, err := b.Open(t.Context(), spec("missing"))
	if e := sandboxmcp.AsError(err); err == nil || e.Code != sandboxmcp.CodeDockerError || !strings.Contains(e.Hint, "daemon.json") {
		t.Errorf("got %v, want docker_error with a hint on daemon.json", err)
	}
}
