package cgroup_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp/internal/cgroup"
)

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestUsageReadOften: a group that is read often keeps its files open, returns the same figures, and closes the
// files when it is removed.
func TestUsageReadOften(t *testing.T) {
	g := group(t, version1(t), cgroup.Limits{MemoryBytes: 64 << 20, MaxTasks: 8})
	cmd := enter(t, g, "/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	first := g.Usage()
	if first.CPU <= 0 || first.PeakTasks < 1 {
		t.Errorf("got %+v", first)
	}
	for range 6 {
		if diff := cmp.Diff(first, g.Usage()); diff != "" {
			t.Errorf("read again (-first +now):\n%s", diff)
		}
	}
	if got := descriptors(t); got <= before {
		t.Errorf("descriptors: got %d, want more than %d", got, before)
	}
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	if got := descriptors(t); got != before {
		t.Errorf("descriptors: got %d, want %d", got, before)
	}
}

// TestAReusedGroupKeepsItsFiles: from its second use on, a group opens no more files with each use, its processes enter
// and its figures are read through those, also after its task controller's group was made anew. Remove closes them.
func TestAReusedGroupKeepsItsFiles(t *testing.T) {
	g := group(t, version1(t), limits)
	before, open := descriptors(t), 0
	for use := range 5 {
		t.Run("Enter", func(t *testing.T) { // closes its entry
			cmd := enter(t, g, "/bin/sh", "-c", "/bin/true & head -c 8388608 /dev/zero | tail -c 8388608 >/dev/null; wait") // a peak that cannot be reset, and more than the kernel charges ahead
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
		})
		u := g.Usage()
		if u.CPU <= 0 || u.PeakTasks < 2 || u.PeakMemory <= 0 {
			t.Errorf("use %d: got %+v, want its time, tasks and memory", use, u)
		}
		if got := g.Walls(); len(got) != 3 {
			t.Errorf("use %d: got the walls %q, want three", use, got)
		}
		if err := g.Clear(); err != nil {
			t.Fatal(err)
		}
		if err := g.Set(limits); err != nil {
			t.Fatal(err)
		}
		if got := descriptors(t); use > 1 && got != open {
			t.Errorf("use %d: %d descriptors are open, want %d", use, got, open)
		} else {
			open = got
		}
	}
	if open <= before {
		t.Errorf("%d descriptors are open, want more than %d", open, before)
	}
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	if got := descriptors(t); got != before {
		t.Errorf("after Remove: %d descriptors are open, want %d", got, before)
	}
}
