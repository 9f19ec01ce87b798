//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// meter reads the CPU time of a suite. That includes its own process, which makes the load
// and runs the engines, and all processes below it, reaped or not.
type meter struct{ file string }

const (
	// unified is the mount point of cgroup v2 beside v1. It has no controllers, so programs
	// do not move processes in it, but it counts the CPU time of each group.
	unified = "/sys/fs/cgroup/unified"
	ticks   = 100 // units of /proc/stat per second, on every architecture
)

// newMeter returns a meter of a cgroup, or of the whole machine if group is empty.
func newMeter(group string) meter {
	if group == "" {
		return meter{}
	}
	return meter{filepath.Join(group, "cpu.stat")}
}

// how describes what the meter counts.
func (m meter) how() string {
	if m.file == "" {
		return "the CPU time of the whole machine, because there was no group to count it by: load from elsewhere is in it"
	}
	return "the CPU time of a control group that holds the measuring process, which makes the load, the servers and all that came of them, until 200 ms after the last answer"
}

// read returns user and system time so far.
func (m meter) read() (time.Duration, error) {
	if m.file == "" {
		return machineTime()
	}
	data, err := os.ReadFile(m.file)
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read CPU time: %w", err)
			}
			return time.Duration(us) * time.Microsecond, nil
		}
	}
	return 0, fmt.Errorf("read CPU time: %s has none", m.file)
}

// Work goes on after an answer: sandboxes end, others are made ready.
const (
	clearing = 200 * time.Millisecond // CPU time that is used within this time after a cell counts for the cell
	looking  = 100 * time.Millisecond // how often rest looks whether the work before has ended
	resting  = 10 * time.Millisecond  // CPU time within looking that servers use without work; a tick of /proc/stat
	looks    = 30                     // most looks
)

// rest waits until the work of the cells before has been done, and reads the meter.
func (m meter) rest(ctx context.Context) (time.Duration, error) {
	at, err := m.read()
	for range looks {
		if err != nil {
			return 0, err
		}
		last := at
		pause(ctx, looking)
		if at, err = m.read(); at-last <= resting {
			break
		}
	}
	return at, err
}

// machineTime returns the busy time of all processors.
func machineTime() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var sum int64
	for i, f := range strings.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 7 { // the label; idle, iowait; guest time, which is counted twice
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read CPU time: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// makeGroup makes a cgroup of that name to start processes in. fd is nil if that is not
// possible.
func makeGroup(name string) (dir string, fd *os.File, remove func()) {
	none := func() {}
	if _, err := os.Stat(unified + "/cgroup.controllers"); err != nil {
		return "", nil, none
	}
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", nil, none
	}
	own := ""
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(line, "0::"); ok {
			own = strings.TrimSpace(v)
		}
	}
	dir = filepath.Join(unified, own, name)
	if err = os.Mkdir(dir, 0o755); err != nil {
		return "", nil, none
	}
	gone := func() { removeGroup(dir) }
	if _, err = os.Stat(filepath.Join(dir, "cpu.stat")); err != nil {
		gone()
		return "", nil, none
	}
	if fd, err = os.Open(dir); err != nil {
		gone()
		return "", nil, none
	}
	return dir, fd, func() { _ = fd.Close(); gone() }
}

// removeGroup removes a cgroup and those below it once they are empty. Killed processes
// may take a moment to leave them.
func removeGroup(dir string) {
	for range 50 {
		inner, _ := filepath.Glob(filepath.Join(dir, "*", "cgroup.procs"))
		for _, file := range inner {
			removeGroup(filepath.Dir(file))
		}
		if err := os.Remove(dir); err == nil || os.IsNotExist(err) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Fprintln(os.Stderr, "bench: stays behind:", dir)
}

// removeGroups removes the cgroups of that name in every hierarchy.
func removeGroups(name string) {
	left, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	for _, dir := range append(left, filepath.Join("/sys/fs/cgroup", name)) {
		if _, err := os.Stat(dir); err == nil {
			removeGroup(dir)
		}
	}
}
