package cgroup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
)

// fake is an ordinary directory in the place of /proc and the control group file
// system, which fills new directories as version 2 does.
type fake struct {
	t     *testing.T
	root  string
	files map[string]string // of a new group below our directory
}

const mount2 = "24 30 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"

func newFake(t *testing.T, own, mounts string) *fake {
	t.Helper()
	f := &fake{t: t, root: t.TempDir(), files: map[string]string{
		"cgroup.procs": "", "cgroup.kill": "", "cpu.stat": "usage_usec 1500\nuser_usec 1000\n",
		"memory.max": "max", "memory.swap.max": "max", "memory.oom.group": "0", "memory.peak": "4096",
		"memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 1\n", "pids.max": "max", "pids.peak": "5", "cpu.max": "max 100000",
		"cgroup.type": "domain", "cgroup.controllers": "cpu memory pids", "cgroup.subtree_control": "",
	}}
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	f.write("proc/self/cgroup", own)
	f.write("proc/self/mountinfo", "22 30 0:5 / /proc rw - proc proc rw\n"+mounts)
	f.write("proc/self/stat", string(stat))
	f.write(fmt.Sprintf("proc/%d/stat", os.Getpid()), string(stat))
	return f
}

func (f *fake) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// group puts a group there that was not made by us.
func (f *fake) group(path, controllers, procs string, root bool) {
	f.t.Helper()
	base := filepath.Join("sys/fs/cgroup", path)
	f.write(base+"/cgroup.controllers", controllers)
	f.write(base+"/cgroup.subtree_control", "")
	f.write(base+"/cgroup.procs", procs)
	if !root {
		f.write(base+"/cgroup.type", "domain")
	}
}

func (f *fake) read(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.root, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (f *fake) open() (*cgroup.Tree, error) {
	return cgroup.Open(cgroup.Config{Root: f.root, TestOnlyMade: func(dir string) {
		for name, text := range f.files {
			// A value that does not stick is a file that forgets.
			if text == "forgets" {
				if err := os.Symlink("/dev/null", filepath.Join(dir, name)); err != nil {
					f.t.Fatal(err)
				}
				continue
			}
			// Our own directory has had its controllers handed on by the time it
			// is read back; the stand-in cannot tell "+pids" from a list.
			if name == "cgroup.subtree_control" {
				text = f.files["cgroup.controllers"]
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
				f.t.Fatal(err)
			}
		}
	}})
}

// one is the path of the only directory of ours below base, relative to the root.
func (f *fake) one(base string) string {
	f.t.Helper()
	found, err := filepath.Glob(filepath.Join(f.root, "sys/fs/cgroup", base, fmt.Sprintf("sandboxmcp-%d-*-0", os.Getpid())))
	if err != nil || len(found) != 1 {
		f.t.Fatalf("directories below %s: %v %v, want one", base, found, err)
	}
	rel, err := filepath.Rel(f.root, found[0])
	if err != nil {
		f.t.Fatal(err)
	}
	return rel
}

func TestVersion2Limits(t *testing.T) {
	f := newFake(t, "0::/\n", mount2)
	f.group("/", "cpuset cpu io memory pids", "1\n2\n", true)
	tree, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	if tree.Version() != 2 || len(tree.Weak()) != 0 {
		t.Errorf("got version %d, weak %v; want 2 and none", tree.Version(), tree.Weak())
	}
	g, err := tree.New("s1", cgroup.Limits{MemoryBytes: 512<<20 + 5, CPUCores: 1.5, MaxTasks: 64})
	if err != nil {
		t.Fatal(err)
	}
	dir := f.one("/") + "/s1/"
	want := map[string]string{
		"memory.max": "536870912", "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "64", "cpu.max": "150000 100000",
	}
	got := map[string]string{}
	for name := range want {
		got[name] = f.read(dir + name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	walls := []string{"memory limit (cgroup v2)", "task limit (cgroup v2)", "cpu quota (cgroup v2)"}
	if diff := cmp.Diff(walls, g.Walls()); diff != "" {
		t.Errorf("walls (-want +got):\n%s", diff)
	}
	f.write(dir+"memory.swap.max", "max\n")
	if diff := cmp.Diff(walls[1:], g.Walls()); diff != "" {
		t.Errorf("walls once swap is open (-want +got):\n%s", diff)
	}
	wantUsage := cgroup.Usage{PeakMemory: 4096, CPU: 1500 * time.Microsecond, PeakTasks: 5, OOMKills: 2}
	if diff := cmp.Diff(wantUsage, g.Usage()); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	checkReuse(t, f, g, dir)
	if err := g.Kill(); err != nil || f.read(dir+"cgroup.kill") != "1" {
		t.Errorf("Kill: got %v, want nil and cgroup.kill written", err)
	}
	if err := tree.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tree.Close(); err != nil {
		t.Errorf("Close, the second time: got %v, want nil", err)
	}
	if _, err := os.Stat(filepath.Join(f.root, dir)); err == nil {
		t.Error("the group after its tree was closed: got it still there, want it removed")
	}
}

// checkReuse: a group that is used again reports no figures of its first use.
func checkReuse(t *testing.T, f *fake, g *cgroup.Group, dir string) {
	t.Helper()
	if err := g.Set(cgroup.Limits{MemoryBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	if f.read(dir+"pids.max") != "max" || f.read(dir+"cpu.max") != "max 100000" {
		t.Error("limits that Set leaves out: got them still in force, want max")
	}
	if diff := cmp.Diff(cgroup.Usage{}, g.Usage()); diff != "" {
		t.Errorf("usage after Set (-want +got):\n%s", diff)
	}
	f.write(dir+"memory.peak", "8192\n")
	f.write(dir+"memory.events", "oom_kill 3\n")
	if diff := cmp.Diff(cgroup.Usage{PeakMemory: 8192, OOMKills: 1}, g.Usage()); diff != "" {
		t.Errorf("usage of the second use (-want +got):\n%s", diff)
	}
}

// Where processes are in the way of groups.
// TestALiftedQuotaIsNoWall: a quota that is lifted is not reported, and holds
// again once it is restored.
func TestALiftedQuotaIsNoWall(t *testing.T) {
	f := newFake(t, "0::/\n", mount2)
	f.group("/", "cpuset cpu io memory pids", "1\n2\n", true)
	tree, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	g, err := tree.New("s1", cgroup.Limits{MemoryBytes: 64 << 20, CPUCores: 0.01, MaxTasks: 64})
	if err != nil {
		t.Fatal(err)
	}
	check := func(when, quota string, wall bool) {
		t.Helper()
		if got := f.read(f.one("/") + "/s1/cpu.max"); got != quota {
			t.Errorf("%s: cpu.max is %q, want %q", when, got, quota)
		}
		if got := strings.Contains(strings.Join(g.Walls(), " "), "cpu quota"); got != wall {
			t.Errorf("%s: walls name the quota: %v, want %v", when, got, wall)
		}
	}
	check("at first", "1000 100000", true)
	for range 2 {
		if err := g.LiftQuota(); err != nil {
			t.Fatal(err)
		}
		check("lifted", "max 100000", false)
	}
	for range 2 {
		if err := g.RestoreQuota(); err != nil {
			t.Fatal(err)
		}
		check("restored", "1000 100000", true)
	}
}

// TestNewLimitsKeepTheRest: new limits neither end Yield nor forget a quota that is lifted.
func TestNewLimitsKeepTheRest(t *testing.T) {
	f := newFake(t, "0::/\n", mount2)
	f.files["cpu.idle"] = "0"
	f.group("/", "cpuset cpu io memory pids", "1\n2\n", true)
	tree, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	g, err := tree.New("s1", cgroup.Limits{MemoryBytes: 64 << 20, CPUCores: 0.01, MaxTasks: 64})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []func() error{g.Yield, g.LiftQuota, func() error { return g.Change(cgroup.Limits{MemoryBytes: 32 << 20, CPUCores: 0.02}) }} {
		if err := set(); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string, want map[string]string) {
		t.Helper()
		for name, value := range want {
			if got := f.read(f.one("/") + "/s1/" + name); got != value {
				t.Errorf("%s: %s is %q, want %q", when, name, got, value)
			}
		}
	}
	check("with the new limits", map[string]string{"memory.max": "33554432", "cpu.max": "max 100000", "cpu.idle": "1", "pids.max": "64"})
	if err := g.RestoreQuota(); err != nil {
		t.Fatal(err)
	}
	check("restored", map[string]string{"memory.max": "33554432", "cpu.max": "2000 100000", "cpu.idle": "0"})
	if err := g.Change(cgroup.Limits{MemoryBytes: 32 << 20, CPUCores: 0.5, MaxTasks: 7}); err != nil {
		t.Fatal(err)
	}
	check("changed", map[string]string{"memory.max": "33554432", "cpu.max": "50000 100000", "pids.max": "7"})
	if walls := strings.Join(g.Walls(), " "); !strings.Contains(walls, "cpu quota") {
		t.Errorf("walls when the quota was restored: got %q, want the quota among them", walls)
	}
}

// TestServerTasksIsTheLowestOfItsGroups: the limit of a group above counts as
// well as that of the server's own.
func TestServerTasksIsTheLowestOfItsGroups(t *testing.T) {
	f := newFake(t, "0::/a/b\n", mount2)
	want := 0
	check := func() {
		t.Helper()
		if got := cgroup.ServerTasks(cgroup.Config{Root: f.root}); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
	f.write("sys/fs/cgroup/a/b/pids.max", "max\n")
	check()
	f.write("sys/fs/cgroup/a/pids.max", "300\n")
	want = 300
	check()
	f.write("sys/fs/cgroup/a/b/pids.max", "200\n")
	want = 200
	check()
}

func TestVersion2Places(t *testing.T) {
	self := fmt.Sprint(os.Getpid())
	t.Run("group above is delegated", func(t *testing.T) {
		f := newFake(t, "0::/user/app.slice/run.scope\n", mount2)
		f.group("/user/app.slice", "memory pids", "", false)
		f.group("/user/app.slice/run.scope", "memory pids", self+"\n77\n", false)
		f.files["cgroup.controllers"] = "memory pids"
		tree, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		f.one("/user/app.slice")
		if w := tree.Weak(); len(w) != 1 || !strings.Contains(w[0], "cpu quota") {
			t.Errorf("weak: %v, want the cpu quota", w)
		}
		g, err := tree.New("s", cgroup.Limits{MemoryBytes: 1 << 30, MaxTasks: 9, CPUCores: 1})
		if err != nil {
			t.Fatal(err)
		}
		if walls := strings.Join(g.Walls(), ","); strings.Contains(walls, "cpu") {
			t.Errorf("walls without a quota: got %v, want no cpu quota", walls)
		}
	})
	t.Run("alone in its own group", func(t *testing.T) {
		f := newFake(t, "0::/box.service\n", mount2)
		f.group("/", "", "", true)
		f.group("/box.service", "cpu memory pids", self+"\n", false)
		tree, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		f.one("/box.service")
		leaf, err := filepath.Glob(filepath.Join(f.root, "sys/fs/cgroup/box.service/sandboxmcp-"+self+"-*-server/cgroup.procs"))
		if err != nil || len(leaf) != 1 {
			t.Fatalf("leaf of the server: got %v %v, want one", leaf, err)
		}
		if b, err := os.ReadFile(leaf[0]); err != nil || string(b) != self {
			t.Errorf("the leaf holds %q %v, want this process", b, err)
		}
		if err := tree.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(leaf[0]); err == nil {
			t.Error("the leaf after Close: got it still there, want it removed")
		}
		if got := f.read("sys/fs/cgroup/box.service/cgroup.procs"); got != self {
			t.Errorf("own group holds %q, want this process", got)
		}
	})
	t.Run("swap is not counted", func(t *testing.T) {
		f := newFake(t, "0::/\n", mount2)
		f.group("/", "cpu memory pids", "", true)
		delete(f.files, "memory.swap.max")
		tree, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		defer tree.Close()
		if w := tree.Weak(); len(w) != 1 || !strings.Contains(w[0], "swap") {
			t.Errorf("weak: %v, want swap", w)
		}
	})
}

// TestAdoptedGroupsSayThatSwapIsNotCounted: the group of another manager has the same weakness as a group of a tree.
func TestAdoptedGroupsSayThatSwapIsNotCounted(t *testing.T) {
	for _, counts := range []bool{true, false} {
		f := newFake(t, "0::/own\n", mount2)
		const pid, box = 77, "sys/fs/cgroup/engine/box"
		f.write(fmt.Sprintf("proc/%d/cgroup", pid), "0::/engine/box\n")
		for name, text := range f.files {
			if name != "memory.swap.max" || counts {
				f.write(box+"/"+name, text)
			}
		}
		g, err := cgroup.Adopt(cgroup.Config{Root: f.root}, pid, cgroup.Limits{MemoryBytes: 64 << 20, MaxTasks: 7})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(g.Weak(), ", "); strings.Contains(got, "swap") == counts {
			t.Errorf("swap is counted: %v; got weak %q", counts, got)
		}
		_ = g.Remove()
	}
}

// Open says why not, and leaves nothing.
func TestOpenRefuses(t *testing.T) {
	self := fmt.Sprint(os.Getpid())
	cases := []struct {
		name, own, mounts string
		set               func(*fake)
		want              string
	}{
		{"nothing mounted", "0::/\n", "", nil, "no control group file system is mounted"},
		{"not delegated", "0::/user/s.scope\n", mount2, func(f *fake) {
			f.group("/user", "memory pids", "", false)
			f.group("/user/s.scope", "", self, false)
			f.write("sys/fs/cgroup/user/cgroup.controllers", "cpu\n")
		}, "controller memory is not delegated to"},
		{"own group at the top with others in it", "0::/\n", mount2, func(f *fake) {
			f.group("/", "memory pids", self+"\n8\n", false)
		}, "holds other processes too"},
		{"outside the namespace", "0::/../other\n", mount2, func(f *fake) { f.group("/", "memory pids", "", true) }, "is not below"},
		{"limit does not stick", "0::/\n", mount2, func(f *fake) {
			f.group("/", "memory pids", "", true)
			f.files["memory.max"] = "forgets"
		}, `the kernel says ""`},
		{"no file of the limit", "0::/\n", mount2, func(f *fake) {
			f.group("/", "memory pids", "", true)
			delete(f.files, "pids.max")
		}, "pids.max: no such file"},
		{"version 1 without memory", "3:pids:/\n", "31 30 0:9 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n", nil, "controller memory: its hierarchy is not mounted"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := newFake(t, c.own, c.mounts)
			if c.set != nil {
				c.set(f)
			}
			tree, err := f.open()
			if err == nil {
				tree.Close()
				t.Fatal("got a tree, want an error")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want it to say %q", err, c.want)
			}
			var left []string
			_ = filepath.WalkDir(filepath.Join(f.root, "sys"), func(path string, d os.DirEntry, err error) error {
				if err == nil && strings.HasPrefix(d.Name(), "sandboxmcp-") {
					left = append(left, path)
				}
				return nil
			})
			if len(left) > 0 {
				t.Errorf("left behind: got %v, want nothing", left)
			}
		})
	}
}

// A new limit that cannot be had leaves no group.
func TestNewLeavesNothing(t *testing.T) {
	f := newFake(t, "0::/\n", mount2)
	f.group("/", "cpu memory pids", "", true)
	tree, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	f.files["cpu.max"] = "forgets"
	if _, err := tree.New("s", cgroup.Limits{CPUCores: 1}); err == nil {
		t.Error("a quota that does not read back: got a group, want an error")
	}
	if _, err := os.Stat(filepath.Join(f.root, f.one("/"), "s")); err == nil {
		t.Error("the group after the error: got it still there, want it removed")
	}
	f.files["cpu.max"] = "max 100000"
	if _, err := tree.New("s", cgroup.Limits{CPUCores: 1}); err != nil {
		t.Errorf("the name, used again: got %v, want a group", err)
	}
}

// TestAGroupIsReusedWithoutAProcessorController: version 1 without the controller cpu holds memory and tasks, also in
// a group that is used again.
func TestAGroupIsReusedWithoutAProcessorController(t *testing.T) {
	f := newFake(t, "4:memory:/\n3:pids:/\n", "31 30 0:9 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"+
		"32 30 0:10 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")
	for _, dir := range []string{"memory", "pids"} {
		f.write("sys/fs/cgroup/"+dir+"/tasks", "")
	}
	f.files = map[string]string{
		"tasks": "", "pids.max": "max", "pids.peak": "1", "pids.current": "0", "memory.limit_in_bytes": "-1",
		"memory.usage_in_bytes": "0", "memory.max_usage_in_bytes": "0", "memory.oom_control": "oom_kill 0\n",
	}
	tree, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	limits := cgroup.Limits{MemoryBytes: 64 << 20, CPUCores: 1, MaxTasks: 64}
	g, err := tree.New("s", limits)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.Clear(); err != nil {
			t.Fatal(err)
		}
		if err := g.Set(limits); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"memory limit (cgroup v1)", "task limit (cgroup v1)"}, g.Walls()); diff != "" {
			t.Errorf("walls (-want +got):\n%s", diff)
		}
	}
	if g.Has("cpu") || !g.Has("memory") || !g.Has("pids") {
		t.Errorf("controllers: cpu %t, memory %t, pids %t, want only the last two", g.Has("cpu"), g.Has("memory"), g.Has("pids"))
	}
}
