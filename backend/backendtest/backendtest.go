// Package backendtest is the suite that every backend passes: each law in the
// comments of package backend is one test here, and each payload below
// testdata/attack is run and its outcomes compared with the refusals that its
// head states. The suite counts processes, mounts, control groups, descriptors
// and goroutines before and after, and what stays behind fails it.
//
// The payloads are hostile on purpose. Each runs behind an interlock: first a
// harmless program in the same sandbox has to show that it cannot read a file
// that the test made outside. A backend that claims no walls (Options.Tier L0) runs none
// of them. They aim at files, processes and descriptors that
// the test itself made, never at the machine's own, and end by themselves.
package backendtest

import (
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

// Options say what is tested and what it has to reach.
type Options struct {
	// New makes the backend. The suite closes it.
	New func(t testing.TB) backend.Backend

	// Python, Node and Bash are interpreters that sandboxes can see, as absolute
	// paths; the tests that need an empty one are skipped as testkit.Need says.
	Python, Node, Bash, Curl string

	// Static is a program without libraries, which prints what is at the address
	// that it is given; nil: none.
	Static []byte

	// Tier is what sandboxes must reach, neither more nor less. The suite expects
	// of L1 what it can hold and of everything above that all laws hold. L0 claims no
	// walls: laws of walls and limits are skipped, and no payload is run.
	Tier sandboxmcp.Tier

	// HeldLimits: the kernel holds memory, tasks and processor time of a sandbox
	// as a whole. Else memory has to be watched, and the isolation must say so.
	HeldLimits bool
}

// Run runs the whole suite.
func Run(t *testing.T, o Options) {
	t.Helper()
	before := Count(t)
	s := &suite{o: o, b: o.New(t), dir: outside(t)}
	t.Run("Laws", func(t *testing.T) {
		for _, l := range laws {
			t.Run(l.name, func(t *testing.T) {
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
	dir  string // outside every sandbox: what no code may reach
	made atomic.Int64
	net  bool // attacks come from sandboxes with a network
	term bool // attacks come from sandboxes with terminals
}

type law struct {
	name string
	test func(*testing.T, *suite)
}

// ofWalls are laws that a backend without walls does not claim. Those that begin with the
// interlock are skipped by it.
var ofWalls = []string{
	"OpenShowsReadOnlyDirs", "OpenShowsADirectoryElsewhere", "ProgramFilesAreInPlaceAndReadOnly", "MissingDirIsAnError",
	"OpenWorksBesideDescriptorsOnTheirWay", "UsageIsSane", "SocketBuffersAreMemory", "CPUTimeOfAProcessIsLimited", "CPUQuotaHolds",
	"WeakTellsOfKernelObjects", "LocksAreCounted", "KillsAreCounted",
}

// laws are in the order of the comments of package backend.
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
	{"ProgramFilesAreInPlaceAndReadOnly", programFiles},
	{"StreamsAreExact", streamsExact},
	{"StdinNilIsEndOfFile", stdinNil},
	{"StdinThatStaysOpen", stdinOpen},
	{"EnvironmentIsExact", envExact},
	{"DirIsWorkDirByDefault", dirDefault},
	{"UserIsTheOneThatIsNamed", userNamed},
	{"ArgumentsAreExact", argvExact},
	{"NulInArgumentsIsRefused", nulRefused},
	{"MissingProgramIsAnError", missingProgram},
	{"MissingDirIsAnError", missingDir},
	{"ExitCodeAndSignalAreToldApart", exitAndSignal},
	{"SignalReachesTheProcessAlone", signalAlone},
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
	{"KillByTheProgramEndsNothingElse", killInit},
	{"KillTwiceAndFilesAfterKill", killTwice},
	{"ClearKeepsTheSandbox", clearKeepsTheSandbox},
	{"FlushHandsOn", flushHandsOn},
	{"FreezeStopsEverything", freezeStopsEverything},
	{"FrozenSandboxesEnd", frozenSandboxesEnd},
	{"FrozenProgramsAreBounded", frozenProgramsAreBounded},
	{"PutIsOneStep", putIsOneStep},
	{"DirectoriesAreMadeAndNamesChanged", mkdirAndRename},
	{"CloseTwice", closeTwice},
	{"EndedContextsAreRefused", endedContexts},
	{"FilesCannotLeave", filesCannotLeave},
	{"FilesListIsBounded", filesList},
	{"FilesOfAClosedDirectoryAreListed", filesShut},
	{"ChangesOfFilesAreReported", changesReported},
	{"WatchesAreBounded", watchesBounded},
	{"UsageIsSane", usageSane},
	{"MemoryIsLimited", memoryLimited},
	{"SocketBuffersAreMemory", socketBuffers},
	{"FullDiskIsNoOutOfMemory", fullDisk},
	{"TasksAreCountedPerSandbox", tasksPerSandbox},
	{"CPUTimeOfAProcessIsLimited", cpuTime},
	{"CPUQuotaHolds", cpuQuota},
	{"TimeThatNobodyWaitsForIsUsed", lostTimeIsUsed},
	{"WeakTellsOfKernelObjects", weakTellsOfObjects},
	{"LocksAreCounted", locksAreCounted},
	{"ConnectionsAreCounted", connectionsAreCounted},
	{"KillsAreCounted", killsAreCounted},
	{"PageTablesAreMemory", pageTablesAreMemory},
	{"ConnectionBuffersAreSmall", connectionBuffersAreSmall},
	{"ProgramsGoOnWithoutWhatIsRefused", programsGoOn},
}

const mib = 1 << 20

// spec is a sandbox as most tests want it.
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

// open opens a sandbox that is closed at the test's end.
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

// environment is what the payloads are told.
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

// ended is a process that ran to its end.
type ended struct {
	Exit     backend.Exit
	Out, Err string
}

// patience is how long any one program of the suite may take.
const patience = 40 * time.Second

// start starts a process with its streams collected.
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

// run starts a process and waits for its end and, for a while, for that of its streams.
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

// sh runs a line of the shell and wants it to end well.
func (x *box) sh(t *testing.T, script string) string {
	t.Helper()
	e := x.run(t, backend.Process{Argv: []string{"/bin/sh", "-c", script}})
	if e.Exit != (backend.Exit{}) {
		t.Fatalf("sh -c %q: exit %+v, stderr %q", script, e.Exit, e.Err)
	}
	return e.Out
}

// python makes a process of a program of testdata/attack, or of the text itself.
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

// usage is what the sandbox has taken.
func (x *box) usage(t testing.TB) backend.Usage {
	t.Helper()
	u, err := x.Usage(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Errorf("Usage: %v", err)
	}
	return u
}

// walls reports whether the backend claims any.
func (s *suite) walls() bool { return s.o.Tier.AtLeast(sandboxmcp.TierL1) }

// needWalls skips the test if the backend claims none.
func (s *suite) needWalls(t *testing.T) {
	t.Helper()
	if !s.walls() {
		t.Skip("the backend claims no walls")
	}
}

// full reports whether the backend is one of which every law has to hold.
func (s *suite) full() bool { return s.o.Tier.AtLeast(sandboxmcp.TierL2) }

// pause waits, or less when the test ends.
func pause(t testing.TB, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// soon asks until the answer is yes.
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

// outside makes a directory with the files that no sandbox may read, beside the
// test's own directory.
func outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // a wall, not a mode, has to keep code out
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
