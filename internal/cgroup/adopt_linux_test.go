package cgroup_test

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// TestAdopt: the limits of a group that another manager has made are set, read back and reported.
// Closing the group leaves it to its manager.
func TestAdopt(t *testing.T) {
	tree, err := cgroup.Open(cgroup.Config{})
	testkit.Need(t, "cgroup", err == nil && tree.Version() == 1, "no control groups of version 1 that this user may write")
	defer func() { _ = tree.Close() }()
	other, err := tree.New("other", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	entry, err := other.Entry()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/cat")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	for _, f := range entry.Tasks {
		if _, err = f.WriteString(strconv.Itoa(cmd.Process.Pid)); err != nil {
			t.Fatal(err)
		}
	}
	_ = entry.Close()
	g, err := cgroup.Adopt(cgroup.Config{}, cmd.Process.Pid, cgroup.Limits{MemoryBytes: 64 << 20, MaxTasks: 7, CPUCores: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(g.Walls(), ", "); strings.Count(got, "(cgroup v1)") != 3 {
		t.Errorf("got %q, want limits of memory, tasks and processor time", got)
	}
	if err = g.Remove(); err != nil {
		t.Errorf("close: %v", err)
	}
	if got := g.Walls(); got != nil {
		t.Errorf("got %q of a closed group, want none", got)
	}
	left, err := other.Entry()
	if err != nil {
		t.Errorf("the group is gone: %v", err)
	}
	_ = left.Close()
	if _, err = cgroup.Adopt(cgroup.Config{}, os.Getpid(), cgroup.Limits{MemoryBytes: 64 << 20}); err == nil {
		t.Error("the group of this process was adopted")
	}
}
