//go:build linux

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// held is what a process and its descendants use on the machine.
type held struct {
	Processes   int // descendants
	Mounts      int // lines of their mount tables, including the process's own
	Namespaces  int // distinct network namespaces
	Cgroups     int // directories below the process's own cgroups
	Descriptors int // open descriptors of the process and its descendants
	TmpfsBytes  int64
	RSS         int64 // resident bytes of the process alone
	Threads     int   // threads of the process alone
	Scratch     int   // files in the temporary directory, if they were counted
	Unreadable  int   // processes that could not be read completely
}

// holds measures a process from outside.
func holds(pid int) held {
	below := descendants(pid)
	h := held{Processes: len(below), RSS: statusBytes(pid, "VmRSS"), Threads: threads(pid), Cgroups: cgroupsOf(pid)}
	nets, tmpfs, tables := map[string]bool{}, map[string]int64{}, map[string]int{}
	host := tmpfsDevices("self")
	for _, p := range append(below, pid) {
		dir := "/proc/" + strconv.Itoa(p)
		complete := true
		if fds, err := os.ReadDir(dir + "/fd"); err == nil {
			h.Descriptors += len(fds)
		} else {
			complete = false
		}
		if ns, err := os.Readlink(dir + "/ns/net"); err == nil {
			nets[ns] = true
		} else {
			complete = false
		}
		table, err := os.ReadFile(dir + "/mountinfo")
		if err != nil {
			complete = false
		}
		// Processes may share a mount namespace. If the namespace cannot be read, the
		// process counts separately.
		ns, err := os.Readlink(dir + "/ns/mnt")
		if err != nil {
			ns = dir
		}
		tables[ns] = strings.Count(string(table), "\n")
		for dev, point := range tmpfsMounts(string(table)) {
			var st unix.Statfs_t
			if host[dev] || unix.Statfs(dir+"/root"+point, &st) != nil {
				continue
			}
			tmpfs[dev] = int64(st.Blocks-st.Bfree) * st.Bsize
		}
		if !complete {
			h.Unreadable++
		}
	}
	for _, n := range tables {
		h.Mounts += n
	}
	h.Namespaces = len(nets)
	for _, n := range tmpfs {
		h.TmpfsBytes += n
	}
	return h
}

// descriptors counts the open descriptors of a process by kind.
func descriptors(pid int) map[string]int {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	out := map[string]int{}
	fds, _ := os.ReadDir(dir)
	for _, fd := range fds {
		to, err := os.Readlink(dir + "/" + fd.Name())
		if err != nil {
			continue
		}
		if kind, _, ok := strings.Cut(to, ":["); ok {
			to = kind
		}
		out[filepath.Base(to)]++
	}
	return out
}

// tmpfsMounts returns the mount point of each tmpfs in a mount table, by device.
func tmpfsMounts(table string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(table) {
		front, back, ok := strings.Cut(line, " - ")
		if f := strings.Fields(front); ok && len(f) > 4 && strings.HasPrefix(back, "tmpfs ") {
			out[f[2]] = f[4]
		}
	}
	return out
}

func tmpfsDevices(process string) map[string]bool {
	table, _ := os.ReadFile("/proc/" + process + "/mountinfo")
	out := map[string]bool{}
	for dev := range tmpfsMounts(string(table)) {
		out[dev] = true
	}
	return out
}

// cgroupsOf counts the directories below cgroups that have the process's id in their names.
func cgroupsOf(pid int) int {
	mark := "/sandboxmcp-" + strconv.Itoa(pid) + "-"
	n := 0
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // one that has just gone
		case !d.IsDir():
			return nil
		case strings.Contains(path, mark):
			n++
		case strings.Count(path, "/") > 12:
			return fs.SkipDir
		}
		return nil
	})
	return n
}

// parents returns the parent of every process.
func parents() map[int]int {
	out := map[int]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name in parentheses may contain any character.
		if f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); len(f) > 1 {
			out[pid], _ = strconv.Atoi(f[1])
		}
	}
	return out
}

func descendants(pid int) []int {
	all := parents()
	var out []int
	for p := range all {
		for up, ok := all[p]; ok && up > 0; up, ok = all[up] {
			if up == pid {
				out = append(out, p)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

func threads(pid int) int {
	tasks, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	return len(tasks)
}

// statusBytes returns a size in /proc/PID/status in bytes, or 0 if it is missing.
func statusBytes(pid int, field string) int64 {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10
		}
	}
	return 0
}

func ownsProcess(uid int) bool {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var st unix.Stat_t
		if _, err := strconv.Atoi(e.Name()); err == nil && unix.Stat("/proc/"+e.Name(), &st) == nil && st.Uid == uint32(uid) {
			return true
		}
	}
	return false
}
