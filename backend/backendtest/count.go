package backendtest

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sandboxmcp/sandboxmcp/backend"
)

// Counts counts the resources that the test process holds, and the machine's resources that exist
// because of it.
type Counts struct {
	Processes   []int    // descendants
	Mounts      int      // lines of mountinfo
	Groups      []string // control groups of this process
	Descriptors int
	RSS         int64 // bytes

	goroutines goleak.Option
	trim       func() // makes a backend release what it keeps for later sandboxes
}

// CountBeside is Count after the backend has released what it keeps for later sandboxes. That is
// bounded, but may be more or less at any time.
func CountBeside(t testing.TB, b backend.Backend) Counts {
	t.Helper()
	p, ok := b.(backend.Pooler)
	if !ok {
		return Count(t)
	}
	trim := func() {
		if err := p.Trim(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Trim: %v", err)
		}
	}
	trim()
	c := Count(t)
	c.trim = trim
	return c
}

// Count counts what this process holds now. Without /proc it finds nothing.
func Count(t testing.TB) Counts {
	t.Helper()
	debug.FreeOSMemory()
	return Counts{
		Processes: descendants(os.Getpid()), Mounts: lines("/proc/self/mountinfo"), Groups: groups(),
		Descriptors: descriptors(), RSS: rss(), goroutines: goleak.IgnoreCurrent(),
	}
}

// Same fails the test if there is more now than when c was counted.
func (c Counts) Same(t *testing.T) {
	t.Helper()
	var now Counts
	diff := func() string {
		if c.trim != nil {
			c.trim()
		}
		now = Count(t)
		now.RSS, now.goroutines = c.RSS, nil
		now.Descriptors = max(now.Descriptors, c.Descriptors) // descriptors of others that were closed meanwhile do not count
		if !slices.ContainsFunc(now.Processes, func(pid int) bool { return !slices.Contains(c.Processes, pid) }) {
			now.Processes = c.Processes
		}
		want := c
		want.goroutines, want.trim = nil, nil
		return cmp.Diff(want, now, cmp.AllowUnexported(Counts{}))
	}
	// The kernel releases some things shortly after the last process has ended.
	if !soon(t, patience, func() bool { return diff() == "" }) {
		t.Errorf("something is left behind (-before +after):\n%s", diff())
	}
	// A database's pool has one while a connection is idle; a sweep may have used it.
	cleaner := goleak.IgnoreTopFunction("database/sql.(*DB).connectionCleaner")
	if err := goleak.Find(c.goroutines, cleaner); err != nil {
		t.Errorf("goroutines are left behind: %v", err)
	}
}

// SameDescriptors fails the test if more descriptors are open than when c was counted. A database
// closes an idle connection after some seconds.
func (c Counts) SameDescriptors(t *testing.T) {
	t.Helper()
	now := 0
	if !soon(t, patience, func() bool { now = descriptors(); return now <= c.Descriptors }) {
		t.Errorf("%d descriptors, then %d", c.Descriptors, now)
	}
}

// descriptors counts the open descriptors of this process. It leaves out files of living processes and pid namespaces in
// /proc: the watch of a sandbox without a control group has them from its next look on.
func descriptors() (n int) {
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, d := range all {
		if to, err := os.Readlink(d); err == nil && filepath.Base(to) != "pagemap" && !strings.HasPrefix(to, "pid:[") { // "pagemap (deleted)" after the end of the process
			n++
		}
	}
	return n
}

// descendants lists the processes below pid, zombies included.
func descendants(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	for _, f := range tasks {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		for w := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(w); err == nil {
				all = append(append(all, n), descendants(n)...)
			}
		}
	}
	return all
}

func lines(path string) int {
	b, _ := os.ReadFile(path)
	return bytes.Count(b, []byte("\n"))
}

// groups returns the control groups whose names contain the number of the test process.
func groups() []string {
	var found []string
	mine := "-" + strconv.Itoa(os.Getpid()) + "-"
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // a group that vanishes does not belong to the test
		}
		if name := d.Name() + "-"; strings.Contains(name, "sandboxmcp") && strings.Contains(name, mine) {
			found = append(found, p)
		}
		return nil
	})
	return found
}

func rss() int64 {
	b, _ := os.ReadFile("/proc/self/statm")
	if f := strings.Fields(string(b)); len(f) > 1 {
		n, _ := strconv.ParseInt(f[1], 10, 64)
		return n * int64(os.Getpagesize())
	}
	return 0
}

// Alive lists the processes of the machine whose command line contains the marker, without zombies.
func Alive(marker string) []int {
	dirs, _ := os.ReadDir("/proc")
	var found []int
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, err := os.ReadFile("/proc/" + d.Name() + "/cmdline")
		if err == nil && bytes.Contains(b, []byte(marker)) {
			found = append(found, pid)
		}
	}
	return found
}
