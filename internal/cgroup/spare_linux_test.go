package cgroup_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
)

// TestSpareIsAsANewGroup: the group of the trial, once its limits are set, has the files of a group that was made with
// these limits, and its usage starts at zero.
func TestSpareIsAsANewGroup(t *testing.T) {
	version1(t)
	tree, err := cgroup.Open(cgroup.Config{Spare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	spare := tree.Spare()
	if spare == nil {
		t.Skip("this machine has no quota of processor time, so no group is kept")
	}
	if again := tree.Spare(); again != nil {
		t.Error("got the group twice")
	}
	for _, l := range []cgroup.Limits{{MemoryBytes: 64 << 20, MaxTasks: 20, CPUCores: 1.5}, {MemoryBytes: 48 << 20, MaxTasks: 9}} {
		if err := spare.Set(l); err != nil {
			t.Fatal(err)
		}
		other, err := tree.New("other", l)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := spare.Walls(), other.Walls(); !slices.Equal(got, want) {
			t.Errorf("got walls %q, want %q", got, want)
		}
		if got, want := spare.Usage(), other.Usage(); got != want {
			t.Errorf("got usage %+v, want %+v", got, want)
		}
		got, want := settings(t, "trial"), settings(t, "other")
		if len(want) == 0 {
			t.Error("got no files of a group")
		}
		for name, text := range want {
			if got[name] != text {
				t.Errorf("%s: got %q, want %q", name, got[name], text)
			}
		}
		if err := other.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if err := spare.Remove(); err != nil {
		t.Error(err)
	}
}

// settings returns the content of all files of a group, by path without the group's name.
func settings(t *testing.T, group string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, dir := range ours(t) {
		files, _ := filepath.Glob(filepath.Join(dir, group, "*"))
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil && filepath.Base(f) != "cpu.stat" { // some can only be written, and that counts periods in which nothing runs
				found[filepath.Join(dir, filepath.Base(f))] = string(text)
			}
		}
	}
	return found
}

// TestAGroupOfFewTasksIsKept: Clear keeps the group of the task controller if its peak is that of one program
// beside an init, and makes it again after a higher one.
func TestAGroupOfFewTasksIsKept(t *testing.T) {
	g := group(t, version1(t), limits)
	run := func(script string) string {
		out, err := enter(t, g, "/bin/sh", "-c", script).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	_, after, _ := strings.Cut(run("exec cat /proc/self/cgroup"), ":pids:")
	path, _, _ := strings.Cut(after, "\n")
	number := func() uint64 {
		var st unix.Stat_t
		if err := unix.Stat("/sys/fs/cgroup/pids"+path, &st); err != nil {
			t.Skip("the task controller is not where it usually is:", err)
		}
		return st.Ino
	}
	if _, err := os.Stat("/sys/fs/cgroup/pids" + path + "/pids.peak"); err != nil {
		t.Skip("this kernel does not tell the peak of version 1:", err)
	}
	cleared := func() bool {
		t.Helper()
		before := number()
		if err := g.Clear(); err != nil {
			t.Fatal(err)
		}
		if err := g.Set(limits); err != nil {
			t.Fatal(err)
		}
		return number() == before
	}
	if !cleared() {
		t.Error("after one process: got another group, want the same")
	}
	run("sleep 0.01 & sleep 0.01 & sleep 0.01 & wait")
	if u := g.Usage(); u.PeakTasks < 4 {
		t.Errorf("got %d tasks at once, want 4", u.PeakTasks)
	}
	if cleared() {
		t.Error("after four processes: got the same group, want another")
	}
	run("exec true")
	if u := g.Usage(); u.PeakTasks != 1 {
		t.Errorf("got %d tasks at once, want 1", u.PeakTasks)
	}
}
