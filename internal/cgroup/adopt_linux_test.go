package cgroup_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

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

// TestOOMsAreToldAfterTheGroupIsGone: whether memory ran out in an adopted group is known while the group
// is there, and after it was removed.
func TestOOMsAreToldAfterTheGroupIsGone(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ eats, removed bool }{
		"memory": {true, false}, "memory then removed": {true, true}, "removed": {false, true}, "neither": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			other := group(t, version1(t), limits)
			cmd := enter(t, other, self)
			cmd.SysProcAttr = nil
			cmd.Env = append(os.Environ(), "CGROUP_TEST_PART=eat")
			in, err := cmd.StdinPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			var g *cgroup.Group
			for end := time.Now().Add(10 * time.Second); ; { // it may not have entered yet
				g, err = cgroup.Adopt(cgroup.Config{}, cmd.Process.Pid, limits)
				if err == nil || time.Now().After(end) {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			o, err := g.OOMs()
			if err != nil {
				t.Fatal(err)
			}
			if c.eats {
				_, _ = in.Write([]byte("x"))
			} else if err = cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if c.removed {
				if err = other.Remove(); err != nil {
					t.Fatal(err)
				}
			}
			if got := o.Any(); got != c.eats {
				t.Errorf("got %t, want %t", got, c.eats)
			}
			if err = errors.Join(o.Close(), g.Remove()); err != nil {
				t.Error(err)
			}
		})
	}
}
