//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// meter tells the CPU time of a suite: of its process, which makes the load and
// holds the engines, and of everything that was ever started below it, whether
// that was waited for or not.
type meter struct{ file string }

const (
	// unified is where a machine of cgroup version 1 has the other version, too:
	// without controllers, so that nobody moves a process in it, and with the
	// CPU time of each group.
	unified = "/sys/fs/cgroup/unified"
	ticks   = 100 // of /proc/stat in a second, on every architecture
)

// newMeter reads a group, or else the whole machine.
func newMeter(group string) meter {
	if group == "" {
		return meter{}
	}
	return meter{filepath.Join(group, "cpu.stat")}
}

// how says what is counted.
func (m meter) how() string {
	if m.file == "" {
		return "the CPU time of the whole machine, because there was no group to count it by: load from elsewhere is in it"
	}
	return "the CPU time of a control group that holds the measuring process, which makes the load, the servers and all that came of them, until 200 ms after the last answer"
}

// read is the CPU time until now, user and system together.
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

// machineTime is what all processors did but wait.
func machineTime() (time.Duration, error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("read CPU time: %w", err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var sum int64
	for i, f := range strings.Fields(line) {
		if i == 0 || i == 4 || i == 5 || i > 7 { // its name; idle, iowait; what guests count twice
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

// makeGroup makes a group for a suite to be started in, where that is possible.
// The descriptor is nil where it is not.
func makeGroup() (dir string, fd *os.File, remove func()) {
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
	dir = filepath.Join(unified, own, "smbench-"+strconv.Itoa(os.Getpid()))
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

// removeGroup removes a group and those in it, once nothing is left there: what
// was killed takes a moment to be gone.
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

// removeGroups removes the groups of a name from every hierarchy.
func removeGroups(name string) {
	left, _ := filepath.Glob("/sys/fs/cgroup/*/" + name)
	for _, dir := range append(left, filepath.Join("/sys/fs/cgroup", name)) {
		if _, err := os.Stat(dir); err == nil {
			removeGroup(dir)
		}
	}
}
