// Package backendtest is the suite that every backend passes. Each rule in the comments of package
// backend has a test here. Each payload below testdata/attack is run, and its outcomes are compared
// with those that its head states. The suite counts processes, mounts, control groups, descriptors
// and goroutines before and after. It fails if any are left.
//
// The payloads are hostile on purpose. Each runs behind an interlock: first a harmless program in
// the same sandbox must fail to read a file that the test made outside. Without claimed walls
// (Options.Tier L0), no payload is run. Payloads attack only files, processes and descriptors that
// the test itself made, and end by themselves.
package backendtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// Options names the backend under test and the walls that it must have.
type Options struct {
	// New makes the backend. The suite closes it.
	New func(t testing.TB) backend.Backend

	// Python, Node, Bash and Curl are absolute paths of programs that sandboxes can see. Tests that
	// need an empty one are skipped, as testkit.Need says.
	Python, Node, Bash, Curl string

	// Static is a program without libraries. It prints the memory at the address in its argument;
	// nil: none.
	Static []byte

	// Tier is the tier that sandboxes must have, neither more nor less. At L1 the suite
	// expects only what that tier can do. Above L1 all tests must pass. L0 claims no walls: tests of
	// walls and limits are skipped, and no payload is run.
	Tier sandboxmcp.Tier

	// Contained says that sandboxes of tier L1 have namespaces and a file system of their own, as those
	// of higher tiers. The suite then expects what it expects of those.
	Contained bool

	// HeldLimits says that the kernel limits memory, tasks and processor time of a sandbox as a
	// whole. Otherwise the backend must watch the memory, and the isolation must say so.
	HeldLimits bool

	// Differ lists outcomes of attacks that differ from those of the process backend, as
	// "PAYLOAD NAME" and the outcome, for a backend whose walls are others; as "PAYLOAD NAME net" where
	// the payload states another outcome for an open network. An outcome of "*" may be any. The caller
	// says of each why it lets nothing out.
	Differ map[string]string

	// Closed is the outcome of a connection to another machine before a network is opened; empty:
	// ENETUNREACH.
	Closed string

	// Lacks lists laws that the backend does not keep, or that cannot be judged from outside, each with
	// the reason. They are skipped.
	Lacks map[string]string

	// LeastTasks is the smallest Usage.PeakTasks that the backend can tell; 0: every number.
	LeastTasks int
}

// Run runs the whole suite.
func Run(t *testing.T, o Options) {
	t.Helper()
	before := Count(t)
	s := &suite{o: o, b: o.New(t), dir: outside(t)}
	t.Cleanup(func() { _ = s.b.Close(context.WithoutCancel(t.Context())) }) // also if only some laws are run
	t.Run("Laws", func(t *testing.T) {
		for _, l := range laws {
			t.Run(l.name, func(t *testing.T) {
				if reason := o.Lacks[l.name]; reason != "" {
					t.Skip(reason)
				}
				if slices.Contains(ofWalls, l.name) {
					s.needWalls(t)
				}
				l.test(t, s)
			})
		}
	})
	t.Run("Networks", s.networks)
	t.Run("Attacks", s.attacks)
	t.Run("CloseBackend", func(t *testing.T) { closeBackend(t, s) })
	t.Run("NothingIsLeft", func(t *testing.T) { before.Same(t) })
}

// suite is one backend under test.
type suite struct {
	o    Options
	b    backend.Backend
	dir  string // a directory outside of every sandbox, which no code may reach
	made atomic.Int64
	net  bool // attacks run in sandboxes with a network
	told bool // attacks run in sandboxes whose attempts to leave are told
	term bool // attacks run in sandboxes with terminals
}

type law struct {
	name string
	test func(*testing.T, *suite)
}

// ofWalls lists tests of walls, which are skipped for a backend without walls. Tests that begin with
// the interlock are not listed, because the interlock skips them.
var ofWalls = []string{
	"OpenShowsReadOnlyDirs", "OpenShowsADirectoryElsewhere", "ProgramFilesAreReadOnly", "DescriptorsAreNoDirectories",
	"OpenWorksBesideDescriptorsOnTheirWay", "UsageIsThatOfThePrograms", "MemoryIsLimited", "SocketBuffersAreMemory", "CPUTimeOfAProcessIsLimited", "CPUQuotaHolds",
	"WeakTellsOfKernelObjects", "LocksAreCounted", "KillsAreCounted",
}

// laws lists the tests in the order of the comments of package backend.
var laws = []law{
	{"CapabilitiesComeFromATrial", capabilitiesFromTrial},
	{"CapabilitiesAgreeWhenAskedAtOnce", capabilitiesAtOnce},
	{"InterpretersRunThere", interpretersRunThere},
	{"OpenRefusesWhatItCannotReach", openRefusesHigherTier},
	{"OpenLeavesNothingBehindWhenItFails", openFailsCleanly},
	{"OpenIsTakenDownWhenItsContextEnds", openCancelled},
	{"OpenManyAtOnce", openManyAtOnce},
	{"OpenWorksBesideDescriptorsOnTheirWay", openBesideInFlight},
	{"OpenShowsReadOnlyDirs", readOnlyDirs},
	{"OpenShowsADirectoryElsewhere", shownElsewhere},
	{"AttachShowsATreeToWhatRuns", attachLive},
	{"AttachNeedsNoMoreProcesses", attachManyLists},
	{"DialReachesAPort", dialReachesAPort},
	{"IsolationAgreesWithCapabilities", isolationAgrees},
	{"ProgramFilesAreInPlace", programFiles},
	{"ProgramFilesAreReadOnly", programFilesReadOnly},
	{"PathsAreReplacedWhole", pathsAreReplacedWhole},
	{"StreamsAreExact", streamsExact},
	{"StdinNilIsEndOfFile", stdinNil},
	{"StdinThatStaysOpen", stdinOpen},
	{"StreamsOpenByName", streamsByName},
	{"EnvironmentIsExact", envExact},
	{"DirIsWorkDirByDefault", dirDefault},
	{"UserIsTheOneThatIsNamed", userNamed},
	{"ArgumentsAreExact", argvExact},
	{"NulInArgumentsIsRefused", nulRefused},
	{"MissingProgramIsAnError", missingProgram},
	{"MissingDirIsAnError", missingDir},
	{"DescriptorsAreNoDirectories", descriptorsAreNoDirs},
	{"ExitCodeAndSignalAreToldApart", exitAndSignal},
	{"SignalReachesTheProcessAlone", signalAlone},
	{"InterruptReachesTheGroup", interruptReachesTheGroup},
	{"ChannelCarriesBothWays", channelBothWays},
	{"ManyChannelsAreApart", manyChannels},
	{"TerminalIsTheProcessesOwn", terminalOwn},
	{"TerminalsAreBoundedAndApart", terminalsApart},
	{"FlushEmptiesTerminals", flushTerminal},
	{"EndedTerminalsMakeRoom", terminalsMakeRoom},
	{"TerminalsOpenNoOtherWay", terminalAttacks},
	{"ClosedStreamsDelayNothing", closedStreams},
	{"WaitIsNotDelayedByDaemons", waitNotDelayed},
	{"WaitIsNotDelayedBySlowWriters", waitSlowWriter},
	{"WaitEndsWithItsContext", waitContext},
	{"FloodIsCarriedWhole", flood},
	{"SeveralProcessesAtOnce", severalProcesses},
	{"KillEndsEverything", killEndsEverything},
	{"KillAndClearEndDeafPrograms", endsDeafPrograms},
	{"KillAndClearEndAllOrFail", endsOrSaysSo},
	{"KillByTheProgramEndsNothingElse", killInit},
	{"KillTwiceAndFilesAfterKill", killTwice},
	{"EndedSandboxesTakeNothing", endedSandboxTakesNothing},
	{"ClearKeepsTheSandbox", clearKeepsTheSandbox},
	{"PruneKeepsWhatItIsTold", pruneKeepsWhatItIsTold},
	{"PruneEndsProcessesWithoutTheirFirstThread", pruneEndsLeaderless},
	{"ProvidedFilesAreRead", providedFilesAreRead},
	{"FlushHandsOn", flushHandsOn},
	{"FreezeStopsEverything", freezeStopsEverything},
	{"FrozenSandboxesEnd", frozenSandboxesEnd},
	{"FrozenProgramsAreBounded", frozenProgramsAreBounded},
	{"PutIsOneStep", putIsOneStep},
	{"DirectoriesAreMadeAndNamesChanged", mkdirAndRename},
	{"CloseTwice", closeTwice},
	{"CloseRemovesDirectories", closeRemovesDirectories},
	{"EndedContextsAreRefused", endedContexts},
	{"FilesCannotLeave", filesCannotLeave},
	{"FilesListIsBounded", filesList},
	{"FilesOfAClosedDirectoryAreListed", filesShut},
	{"NewNamesChangeTheTimeOfTheDirectory", namesAreDated},
	{"ChangesOfFilesAreReported", changesReported},
	{"WatchesAreBounded", watchesBounded},
	{"UsageIsSane", usageSane},
	{"UsageIsThatOfThePrograms", usageIsThatOfThePrograms},
	{"MemoryIsLimited", memoryLimited},
	{"SpawningIsNoMemory", spawningIsNoMemory},
	{"SocketBuffersAreMemory", socketBuffers},
	{"FullDiskIsNoOutOfMemory", fullDisk},
	{"TasksAreCountedPerSandbox", tasksPerSandbox},
	{"CPUTimeOfAProcessIsLimited", cpuTime},
	{"CPUQuotaHolds", cpuQuota},
	{"CPUShareHoldsForProgramsThatContinueThemselves", cpuShareHoldsForContinued},
	{"TimeThatNobodyWaitsForIsUsed", lostTimeIsUsed},
	{"WeakTellsOfKernelObjects", weakTellsOfObjects},
	{"LocksAreCounted", locksAreCounted},
	{"ConnectionsAreCounted", connectionsAreCounted},
	{"PortsAreCounted", portsAreCounted},
	{"WaitingSendersAreCounted", waitingSendersAreCounted},
	{"SocketsAreCounted", socketsAreCounted},
	{"DirectoriesAreCounted", directoriesAreCounted},
	{"TextsAreCounted", textsAreCounted},
	{"KillsAreCounted", killsAreCounted},
	{"PageTablesAreMemory", pageTablesAreMemory},
	{"MappingsAreMemory", mappingsAreMemory},
	{"BuffersAreMemory", buffersAreMemory},
	{"MappingsAreCounted", mappingsAreCounted},
	{"TablesWithoutMemoryAreCounted", tablesWithoutMemoryAreCounted},
	{"ConnectionBuffersAreSmall", connectionBuffersAreSmall},
	{"ProgramsGoOnWithoutWhatIsRefused", programsGoOn},
}

const mib = 1 << 20

// spec returns the Spec that most tests use.
func (s *suite) spec() backend.Spec {
	return backend.Spec{
		ID: fmt.Sprintf("t%d", s.made.Add(1)), MinTier: s.o.Tier, MemoryBytes: 256 * mib, CPUCores: 1, MaxTasks: 64,
		CPUTime: time.Minute, WorkBytes: 32 * mib, WorkInodes: 2000, TempBytes: 16 * mib,
	}
}

// box is an open sandbox of a test.
type box struct {
	s    *suite
	spec backend.Spec
	backend.Sandbox
	answering
}

// open opens a sandbox, which is closed when the test ends.
func (s *suite) open(t *testing.T, change ...func(*backend.Spec)) *box {
	t.Helper()
	spec := s.spec()
	for _, f := range change {
		f(&spec)
	}
	sb, err := s.b.Open(t.Context(), spec)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := sb.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return &box{s: s, spec: spec, Sandbox: sb}
}

// environment returns the environment of the payloads.
func (x *box) environment(more map[string]string) []string {
	env := map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
		"WORK": backend.WorkDir, "TMPDIR": backend.TempDir, "HOME": backend.TempDir, "PROGRAM": backend.ProgramDir,
		"MAXTASKS":  fmt.Sprint(x.spec.MaxTasks),
		"WORKBYTES": fmt.Sprint(x.spec.WorkBytes), "WORKINODES": fmt.Sprint(x.spec.WorkInodes), "TEMPBYTES": fmt.Sprint(x.spec.TempBytes),
	}
	maps.Copy(env, more)
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

// ended is the result of a process that has ended.
type ended struct {
	Exit     backend.Exit
	Out, Err string
}

// patience bounds the time of any program of the suite.
const patience = 40 * time.Second

// start starts a process and collects its streams.
func (x *box) start(t *testing.T, p backend.Process) (backend.Running, *text, *text) {
	t.Helper()
	var out, errs text
	if p.Stdout == nil {
		p.Stdout = &out
	}
	if p.Stderr == nil {
		p.Stderr = &errs
	}
	if p.Env == nil {
		p.Env = x.environment(nil)
	}
	r, err := x.Start(t.Context(), p)
	if err != nil {
		t.Fatalf("Start %q: %v", p.Argv, err)
	}
	return r, &out, &errs
}

// run starts a process and waits for its end and, for a limited time, for that of its streams.
func (x *box) run(t *testing.T, p backend.Process) ended {
	t.Helper()
	r, out, errs := x.start(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e, err := r.Wait(ctx)
	if err != nil {
		t.Fatalf("Wait %q: %v\n%s%s", p.Argv, err, out.String(), errs.String())
	}
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_ = r.Drain(short)
	return ended{e, out.String(), errs.String()}
}

// sh runs a shell script, which must succeed.
func (x *box) sh(t *testing.T, script string) string {
	t.Helper()
	e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", script}})
	if e.Exit != (backend.Exit{}) {
		t.Fatalf("sh -c %q: exit %+v, stderr %q", script, e.Exit, e.Err)
	}
	return e.Out
}

// python returns the process of a program of testdata/attack, or of the text itself.
func (x *box) python(t *testing.T, program string, args ...string) backend.Process {
	t.Helper()
	testkit.Need(t, "python", x.s.o.Python != "", "no interpreter that a sandbox can see")
	files := []backend.ProgramFile{{Name: "main.py", Data: []byte(program)}, {Name: "attempt.py", Data: payload(t, "attempt.py")}}
	if strings.HasSuffix(program, ".py") {
		files[0].Data = payload(t, program)
	}
	files = append(files, backend.ProgramFile{Name: "canary", Data: []byte(strings.Join(x.s.canaries(), "\n"))})
	return backend.Process{Argv: append([]string{x.s.o.Python, backend.ProgramDir + "/main.py"}, args...), Program: files}
}

// usage returns what the sandbox has used.
func (x *box) usage(t testing.TB) backend.Usage {
	t.Helper()
	u, err := x.Usage(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Errorf("Usage: %v", err)
	}
	return u
}

// closed returns the outcome of a connection to another machine before a network is opened.
func (s *suite) closed() string { return cmp.Or(s.o.Closed, "ENETUNREACH") }

// walls reports whether the backend claims any walls.
func (s *suite) walls() bool { return s.o.Tier.AtLeast(sandboxmcp.TierL1) }

// needWalls skips the test if the backend claims no walls.
func (s *suite) needWalls(t *testing.T) {
	t.Helper()
	if !s.walls() {
		t.Skip("the backend claims no walls")
	}
}

// lacks skips the test because the backend's tier does not claim what it needs.
func (s *suite) lacks(t *testing.T, what string) {
	t.Helper()
	t.Skipf("tier %s does not claim %s", s.o.Tier, what)
}

// full reports whether the backend must pass all tests.
func (s *suite) full() bool { return s.o.Tier.AtLeast(sandboxmcp.TierL2) || s.o.Contained }

// pause waits for d, or until the test ends.
func pause(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// soon calls ok until it returns true or the limit has passed.
func soon(t testing.TB, limit time.Duration, ok func() bool) bool {
	t.Helper()
	for end := time.Now().Add(limit); ; {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		pause(t, 5*time.Millisecond)
	}
}

// outside makes a directory with files that no sandbox may read, beside the test's own directory.
func outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // a wall must keep code out, and not the file mode
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
