package cgroup_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// The parts that tests play in a child process.
func TestMain(m *testing.M) {
	switch os.Getenv("CGROUP_TEST_PART") {
	case "":
		os.Exit(m.Run())
	case "clone": // start a process in the group that descriptor 3 is
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: 3}
		fmt.Print(cmd.Run())
		os.Exit(0)
	case "eat": // wait for a byte, then take memory for ever
		_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
		for hold := [][]byte{}; ; {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			hold = append(hold, b)
		}
	}
}

// version1 opens a tree on this machine, or skips the test.
func version1(t testing.TB) *cgroup.Tree {
	t.Helper()
	tree, err := cgroup.Open(cgroup.Config{})
	if err == nil && tree.Version() != 1 {
		tree.Close()
		err = errors.New("this machine has limits on version 2, the test is about version 1")
	}
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("SANDBOXMCP_MUST_RUN"), ","), "cgroup") {
			t.Fatalf("cgroup must run: %v", err)
		}
		t.Skipf("no control groups: %v", err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
		if left := ours(t); len(left) > 0 {
			t.Errorf("groups left behind: got %v, want none", left)
		}
	})
	return tree
}

// ours lists the directories of this process in all hierarchies.
func ours(t testing.TB) []string {
	t.Helper()
	var found []string
	prefix := fmt.Sprintf("sandboxmcp-%d-", os.Getpid())
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), prefix) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var limits = cgroup.Limits{MemoryBytes: 32 << 20, CPUCores: 0.5, MaxTasks: 20}

func group(t testing.TB, tree *cgroup.Tree, l cgroup.Limits) *cgroup.Group {
	t.Helper()
	g, err := tree.New(strings.NewReplacer("/", "-").Replace(t.Name()), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// enter starts a command of another user, which enters by the descriptors and
// then becomes the program.
func enter(t *testing.T, g *cgroup.Group, argv ...string) *exec.Cmd {
	t.Helper()
	entry, err := g.Entry()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { entry.Close() })
	script := ""
	for i := range entry.Tasks {
		script += fmt.Sprintf("echo 0 >&%d && ", i+3)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", script + `exec "$@"`, "sh"}, argv...)...)
	cmd.ExtraFiles = entry.Tasks
	cmd.Dir = "/"
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return cmd
}

func TestWallsAreReadBack(t *testing.T) {
	tree := version1(t)
	g := group(t, tree, limits)
	want := []string{"memory limit (cgroup v1)", "task limit (cgroup v1)", "cpu quota (cgroup v1)"}
	if diff := cmp.Diff(want, g.Walls()); diff != "" {
		t.Errorf("walls (-want +got):\n%s", diff)
	}
	// A limit that was removed from outside is not reported as a wall.
	for _, path := range ours(t) {
		file := filepath.Join(path, t.Name(), "pids.max")
		if _, err := os.Stat(file); err == nil {
			if err := os.WriteFile(file, []byte("max"), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff([]string{want[0], want[2]}, g.Walls()); diff != "" {
		t.Errorf("walls without the task limit (-want +got):\n%s", diff)
	}
}

func TestLimitsInTheKernel(t *testing.T) {
	tree := version1(t)
	g := group(t, tree, cgroup.Limits{MemoryBytes: 32<<20 + 17, CPUCores: 0.5, MaxTasks: 20})
	check := func(want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for _, path := range ours(t) {
			for name := range want {
				if b, err := os.ReadFile(filepath.Join(path, t.Name(), name)); err == nil {
					got[name] = strings.TrimSpace(string(b))
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	check(map[string]string{
		"memory.limit_in_bytes": "33554432", "memory.memsw.limit_in_bytes": "33554432", "memory.swappiness": "0",
		"pids.max": "20", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000",
	})
	for _, l := range []cgroup.Limits{{MemoryBytes: 64 << 20, CPUCores: 1.5, MaxTasks: 7}, {MemoryBytes: 16 << 20, CPUCores: 0.001, MaxTasks: 70}} {
		if err := g.Set(l); err != nil {
			t.Fatal(err)
		}
		check(map[string]string{
			"memory.limit_in_bytes": fmt.Sprint(l.MemoryBytes), "memory.memsw.limit_in_bytes": fmt.Sprint(l.MemoryBytes),
			"pids.max": fmt.Sprint(l.MaxTasks), "cpu.cfs_quota_us": fmt.Sprint(max(int(l.CPUCores*100000), 1000)),
		})
	}
	if err := g.Set(cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	check(map[string]string{"memory.limit_in_bytes": "9223372036854771712", "pids.max": "max", "cpu.cfs_quota_us": "-1"})
	if got := g.Walls(); len(got) != 0 {
		t.Errorf("walls of a group without limits: %v", got)
	}
}

func TestEntryOfAProcessWithoutRights(t *testing.T) {
	g := group(t, version1(t), limits)
	out, err := enter(t, g, "/bin/cat", "/proc/self/cgroup").CombinedOutput()
	if err != nil {
		t.Fatalf("a process in the group: got %v: %s, want no error", err, out)
	}
	for _, controller := range []string{":memory:", ":pids:", ":cpu:", ":cpuacct:"} {
		if !strings.Contains(string(out), controller) {
			continue // co-mounted with another
		}
		_, line, _ := strings.Cut(string(out), controller)
		line, _, _ = strings.Cut(line, "\n")
		if !strings.HasSuffix(line, "/"+t.Name()) {
			t.Errorf("controller %s: got the process in %s, want it in the group", controller, line)
		}
	}
}

func TestTaskLimitHolds(t *testing.T) {
	g := group(t, version1(t), limits)
	out, err := enter(t, g, "/bin/bash", "-c", "for i in $(seq 40); do sleep 0.2 & done; wait").CombinedOutput()
	if !strings.Contains(string(out), "Resource temporarily unavailable") {
		t.Errorf("40 processes under a limit of 20: got %v %s, want a refused fork", err, out)
	}
}

func TestMemoryLimitKillsAndIsCounted(t *testing.T) {
	g := group(t, version1(t), limits)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 { // the second time the group is used again
		cmd := enter(t, g, self)
		cmd.SysProcAttr = nil // the test program need not be readable by others
		cmd.Env = append(os.Environ(), "CGROUP_TEST_PART=eat")
		cmd.Stdin = strings.NewReader("x")
		err = cmd.Run()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("a process that takes memory for ever: got %v, want it killed", err)
		}
		u := g.Usage()
		if u.OOMKills != 1 {
			t.Errorf("round %d: got %d oom kills, want 1", round, u.OOMKills)
		}
		if u.PeakMemory < 24<<20 || u.PeakMemory > 33<<20 { // the kernel counts the page that was too much
			t.Errorf("round %d: got peak memory %d under a limit of 32 MiB, want 24 to 33 MiB", round, u.PeakMemory)
		}
		if u.CPU <= 0 || u.CPU > time.Minute {
			t.Errorf("round %d: got processor time %v, want more than none and less than a minute", round, u.CPU)
		}
		if err := g.Set(limits); err != nil {
			t.Fatal(err)
		}
		if u := g.Usage(); u.OOMKills != 0 || u.CPU > 50*time.Millisecond || u.PeakTasks != 0 || u.PeakMemory > 16<<20 {
			t.Errorf("round %d: got usage %+v after Set, want it to begin anew", round, u)
		}
	}
}

func TestQuotaSlows(t *testing.T) {
	g := group(t, version1(t), cgroup.Limits{CPUCores: 0.1})
	start := time.Now()
	if out, err := enter(t, g, "/bin/bash", "-c", "for ((i=0;i<200000;i++)); do :; done").CombinedOutput(); err != nil {
		t.Fatalf("a busy process: got %v: %s, want no error", err, out)
	}
	wall, cpu := time.Since(start), g.Usage().CPU
	if wall < 3*cpu {
		t.Errorf("got %v of processor time in %v under a quota of 0.1, want at most a third", cpu, wall)
	}
}

// TestALiftedQuotaDoesNotSlow: on version 1, in the kernel.
func TestALiftedQuotaDoesNotSlow(t *testing.T) {
	g := group(t, version1(t), cgroup.Limits{CPUCores: 0.01})
	walls := g.Walls()
	if err := g.LiftQuota(); err != nil {
		t.Fatal(err)
	}
	if got := g.Walls(); len(got) != 0 {
		t.Errorf("lifted: walls are %q, want none", got)
	}
	if err := g.RestoreQuota(); err != nil {
		t.Fatal(err)
	}
	if got := g.Walls(); !slices.Equal(got, walls) {
		t.Errorf("restored: walls are %q, want %q", got, walls)
	}
}

// TestAGroupYieldsUntilItIsRestored: on version 1, in the kernel.
func TestAGroupYieldsUntilItIsRestored(t *testing.T) {
	g := group(t, version1(t), cgroup.Limits{CPUCores: 0.5})
	idle := func() string {
		b, err := os.ReadFile("/sys/fs/cgroup/cpu/" + g.Name() + "/cpu.idle")
		testkit.Need(t, "cpu.idle", err == nil, "the kernel is older than 5.15, or the group is elsewhere")
		return strings.TrimSpace(string(b))
	}
	for name, end := range map[string]func() error{"RestoreQuota": g.RestoreQuota, "Set": func() error { return g.Set(cgroup.Limits{CPUCores: 1}) }} {
		if err := g.Yield(); err != nil || idle() != "1" {
			t.Fatalf("Yield: got %v and cpu.idle %s, want nil and 1", err, idle())
		}
		if err := end(); err != nil || idle() != "0" {
			t.Errorf("%s: got %v and cpu.idle %s, want nil and 0", name, err, idle())
		}
	}
}

func TestRemoveWaitsForTheDying(t *testing.T) {
	tree := version1(t)
	g := group(t, tree, limits)
	cmd := enter(t, g, "/bin/sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the process runs in the group", func() bool { return g.Usage().CPU > 0 })
	time.AfterFunc(50*time.Millisecond, func() { cmd.Process.Kill(); cmd.Wait() })
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if err := g.Remove(); err != nil {
		t.Errorf("Remove, the second time: got %v, want nil", err)
	}
	if u := g.Usage(); u != (cgroup.Usage{}) {
		t.Errorf("usage of a removed group: got %+v, want none", u)
	}
	if w := g.Walls(); w != nil {
		t.Errorf("walls of a removed group: got %v, want none", w)
	}
}

func TestNamesAreRefused(t *testing.T) {
	tree := version1(t)
	for _, name := range []string{"", "..", "a/b", "a b", strings.Repeat("x", 65), "a\n"} {
		if g, err := tree.New(name, limits); err == nil {
			g.Remove()
			t.Errorf("name %q: got a group, want a refusal", name)
		}
	}
	group(t, tree, limits)
	if _, err := tree.New(t.Name(), limits); err == nil {
		t.Error("a name, the second time: got a group, want a refusal")
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.New("late", limits); err == nil {
		t.Error("New of a closed tree: got a group, want an error")
	}
}

func TestKillIsOfVersion2(t *testing.T) {
	g := group(t, version1(t), limits)
	if err := g.Kill(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want unsupported", err)
	}
}

func TestSweepTakesTheDeadOnly(t *testing.T) {
	tree := version1(t)
	var base string
	for _, path := range ours(t) {
		if _, err := os.Stat(filepath.Join(path, "pids.max")); err == nil {
			base = filepath.Dir(path)
		}
	}
	if base == "" {
		t.Fatal("got no directory in the pids hierarchy, want one")
	}
	child := exec.CommandContext(t.Context(), "/bin/sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	gone := exec.CommandContext(t.Context(), "/bin/true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	dirs := map[string]struct {
		name, group string
		stays       bool
	}{
		"dead":             {name: fmt.Sprintf("sandboxmcp-%d-1-0", gone.Process.Pid), group: "g"},
		"pid taken over":   {name: fmt.Sprintf("sandboxmcp-%d-1-0", child.Process.Pid), group: "g"},
		"dead, process in": {name: fmt.Sprintf("sandboxmcp-%d-2-0", gone.Process.Pid), group: "busy", stays: true},
		"locked elsewhere": {name: fmt.Sprintf("sandboxmcp-%d-3-0", gone.Process.Pid), group: "g", stays: true},
		"alive":            {name: fmt.Sprintf("sandboxmcp-%d-%s-0", child.Process.Pid, started(t, child.Process.Pid)), group: "g", stays: true},
		"not ours":         {name: "sandboxmcp-notes", group: "g", stays: true},
	}
	for _, d := range dirs {
		path := filepath.Join(base, d.name, d.group)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(path); os.Remove(filepath.Dir(path)) })
	}
	locked, err := os.Open(filepath.Join(base, dirs["locked elsewhere"].name))
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if err := syscall.Flock(int(locked.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	busy := filepath.Join(base, dirs["dead, process in"].name, "busy", "cgroup.procs")
	if err := os.WriteFile(busy, []byte(fmt.Sprint(child.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	n, err := tree.Sweep()
	if err != nil || n < 2 {
		t.Errorf("swept %d, %v, want at least 2", n, err)
	}
	for what, d := range dirs {
		_, err := os.Stat(filepath.Join(base, d.name, d.group))
		if got := err == nil; got != d.stays {
			t.Errorf("%s: stays %t, want %t", what, got, d.stays)
		}
	}
	child.Process.Kill()
	child.Wait()
	if _, err := tree.Sweep(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(busy)); err == nil {
		t.Error("the group of a dead owner whose process has ended: got it still there, want it swept")
	}
	if len(ours(t)) == 0 {
		t.Error("got the tree's own group swept, want it kept")
	}
}

func started(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(stat))[21] // the name has no spaces
}

func BenchmarkNewRemove(b *testing.B) {
	tree := version1(b)
	var made, gone []time.Duration
	for i := range b.N {
		start := time.Now()
		g, err := tree.New(fmt.Sprintf("b%d", i), limits)
		if err != nil {
			b.Fatal(err)
		}
		mid := time.Now()
		if err := g.Remove(); err != nil {
			b.Fatal(err)
		}
		made, gone = append(made, mid.Sub(start)), append(gone, time.Since(mid))
	}
	slices.Sort(made)
	slices.Sort(gone)
	b.ReportMetric(float64(made[b.N/2].Nanoseconds())/1e3, "µs/new-p50")
	b.ReportMetric(float64(gone[b.N/2].Nanoseconds())/1e3, "µs/remove-p50")
}

func BenchmarkSet(b *testing.B) {
	tree := version1(b)
	g := group(b, tree, limits)
	for i := 0; b.Loop(); i++ {
		l := limits
		l.MaxTasks += i % 2
		if err := g.Set(l); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWalls(b *testing.B) {
	g := group(b, version1(b), limits)
	for b.Loop() {
		if len(g.Walls()) != 3 {
			b.Fatal("got fewer walls, want 3")
		}
	}
}

// TestClearedGroupIsAsNew: after Clear and Set nothing of the last use shows.
func TestClearedGroupIsAsNew(t *testing.T) {
	g := group(t, version1(t), limits)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		cmd := enter(t, g, self)
		cmd.SysProcAttr = nil
		cmd.Env = append(os.Environ(), "CGROUP_TEST_PART=eat")
		cmd.Stdin = strings.NewReader("x")
		if err := cmd.Run(); err == nil {
			t.Fatal("a process that takes memory for ever: got no error, want it killed")
		}
		if u := g.Usage(); u.OOMKills != 1 || u.PeakTasks < 1 || u.PeakMemory < 24<<20 {
			t.Errorf("round %d: got usage %+v, want one kill, tasks and at least 24 MiB", round, u)
		}
		if err := g.Clear(); err != nil {
			t.Fatal(err)
		}
		if err := g.Set(limits); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cgroup.Usage{}, g.Usage()); diff != "" {
			t.Errorf("round %d: usage of a group that is used again (-want +got):\n%s", round, diff)
		}
		if got := g.Walls(); len(got) != 3 {
			t.Errorf("round %d: walls %q, want three", round, got)
		}
	}
}

// TestClearRefuses: a group that has a process, or was removed, cannot be cleared.
func TestClearRefuses(t *testing.T) {
	g := group(t, version1(t), limits)
	cmd := enter(t, g, "/bin/sh", "-c", "echo inside; read x")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // from here on it is in the group
		t.Fatal(err)
	}
	if err := g.Clear(); err == nil {
		t.Error("Clear of a group with a process: got no error, want one")
	}
	in.Close()
	_ = cmd.Wait()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if err := g.Clear(); err == nil {
		t.Error("Clear of a removed group: got no error, want one")
	}
}
