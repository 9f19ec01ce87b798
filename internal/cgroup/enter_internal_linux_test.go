package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// unified opens a tree on the machine's version 2 hierarchy. It requires no controllers,
// because a machine with limits of version 1 has none there.
func unified(t *testing.T) *Tree {
	t.Helper()
	s, err := survey(Config{})
	if err == nil {
		var tree *Tree
		if tree, err = s.open2(nil); err == nil {
			closeAfter(t, tree)
			return tree
		}
	}
	testkit.Need(t, "cgroup", false, fmt.Sprintf("no version 2 hierarchy to write to: %v", err))
	return nil
}

// closeAfter closes a tree after the test.
func closeAfter(t *testing.T, tree *Tree) {
	t.Helper()
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
}

// groupG makes the group g in a tree and opens it for entry, until the test ends.
func groupG(t *testing.T, tree *Tree) (*Group, Entry) {
	t.Helper()
	g, err := tree.New("g", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	entry, err := g.Entry()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = entry.Close() })
	return g, entry
}

// A child is born in the group and the group is killed, by the kernel.
func TestCloneIntoAndKill(t *testing.T) {
	tree := unified(t)
	g, entry := groupG(t, tree)
	var children []*exec.Cmd
	for range 3 {
		cmd := exec.CommandContext(t.Context(), "/bin/sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(entry.Dir.Fd())}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		children = append(children, cmd)
		where, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
		if err != nil || !strings.Contains(string(where), "0::/"+tree.hierarchies[0].name+"/g\n") {
			t.Errorf("the child: got it in %s %v, want it in the group", where, err)
		}
	}
	// The other way in: a process that writes its way.
	slow := exec.CommandContext(t.Context(), "/bin/sh", "-c", "echo 0 >&3; exec sleep 60 3>&-")
	slow.ExtraFiles = entry.Tasks
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	children = append(children, slow)
	testkit.Until(t, "the process is in the group", func() bool {
		return strings.Contains(procs(t, tree), fmt.Sprint(slow.Process.Pid))
	})
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range children {
		err := cmd.Wait()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("child ended with %v, want SIGKILL", err)
		}
	}
	if got := procs(t, tree); got != "" {
		t.Errorf("processes left: %s", got)
	}
}

func procs(t *testing.T, tree *Tree) string {
	t.Helper()
	text, err := tree.hierarchies[0].read("g/cgroup.procs")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A process of another user clones into a group only once the directories were
// given to it, and only from within the tree.
func TestChownForEntry(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("giving directories away takes root")
	}
	const nobody = 65534
	tree := unified(t)
	before, err := tree.New("before", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.ChownForEntry(nobody, nobody); err != nil {
		t.Fatal(err)
	}
	after, err := tree.New("after", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	owner := func(g *Group, name string) uint32 {
		st, err := os.Stat(filepath.Join(tree.hierarchies[0].path, g.name, name))
		if err != nil {
			t.Fatal(err)
		}
		return st.Sys().(*syscall.Stat_t).Uid
	}
	for _, c := range []struct {
		g    *Group
		name string
		want uint32
	}{
		{before, "", 0},
		{before, "cgroup.procs", 0},
		{after, "", nobody},
		{after, "cgroup.procs", nobody},
		{after, "cgroup.kill", 0},
		{after, "cgroup.subtree_control", 0},
		{after, "../cgroup.procs", nobody},
	} {
		if got := owner(c.g, c.name); got != c.want {
			t.Errorf("%s/%s belongs to %d, want %d", c.g.name, c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		from, to *Group // from nil: outside the tree
		want     string
	}{
		{after, after, "<nil>"},
		{after, before, "permission denied"},
		{nil, after, "permission denied"},
	} {
		if got := cloneAs(t, nobody, c.from, c.to); !strings.HasSuffix(got, c.want) {
			t.Errorf("clone from %v into %s: got %s, want %s", c.from != nil, c.to.name, got, c.want)
		}
	}
}

// cloneAs lets a process of a user, which is in one group, clone into another.
func cloneAs(t *testing.T, uid uint32, from, to *Group) string {
	t.Helper()
	self, err := os.Open("/proc/self/exe") // by descriptor: the user may not see where it lies
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	target, err := to.Entry()
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	cmd := exec.CommandContext(t.Context(), "/proc/self/fd/4")
	cmd.ExtraFiles = []*os.File{target.Dir, self}
	cmd.Env = []string{"CGROUP_TEST_PART=clone"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if from != nil {
		home, err := from.Entry()
		if err != nil {
			t.Fatal(err)
		}
		defer home.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(home.Dir.Fd())
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("the child: got %v: %s, want no error", err, out)
	}
	return string(out)
}
