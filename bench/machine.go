//go:build linux

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machine describes the machine on which the measurement ran.
type machine struct {
	System  string // the distribution
	Kernel  string
	CPU     string
	Cores   int
	Cgroups string
	Go      string
	Bwrap   string
	Load    string // load average before the measurement
}

func describe(ctx context.Context) machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Bwrap: "not installed", Load: loadAverage(), CPU: "unknown", System: "unknown", Cgroups: "none"}
	m.Kernel = runtime.GOARCH
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + kernelVersion(unix.ByteSliceToString(u.Release[:])) + " " + unix.ByteSliceToString(u.Machine[:])
	}
	if v := lineOf("/proc/cpuinfo", "model name", ":"); v != "" {
		m.CPU = v
	}
	if v := lineOf("/etc/os-release", "PRETTY_NAME", "="); v != "" {
		m.System = strings.Trim(v, `"`)
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		m.Cgroups = "version 2"
	} else if found, _ := filepath.Glob("/sys/fs/cgroup/memory/cgroup.procs"); len(found) > 0 {
		m.Cgroups = "version 1"
	}
	if out, err := exec.CommandContext(ctx, "bwrap", "--version").Output(); err == nil {
		m.Bwrap = strings.TrimSpace(string(out))
	}
	return m
}

// commit returns the commit of the working directory, from which the program was built.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// kernelVersion returns a kernel release without the builder's suffix.
func kernelVersion(release string) string {
	version, _, _ := strings.Cut(release, "-")
	return version
}

// lineOf returns the value of the first line of a file that begins with key.
func lineOf(file, key, sep string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, sep); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// loadAverage returns the load of the last minute.
func loadAverage() string {
	data, _ := os.ReadFile("/proc/loadavg")
	one, _, _ := strings.Cut(string(data), " ")
	return one
}
