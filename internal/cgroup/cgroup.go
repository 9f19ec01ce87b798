// Package cgroup holds limits on trees of processes: groups are made, entered,
// read back and removed, on the first and the second version of the kernel's
// control groups.
//
// The promise: a limit counts only when the kernel has been read back and says
// it. [Open] makes a group, limits it, reads the limits and removes it before it
// says that limits are to be had, and its error tells why they are not, in words
// for the operator. Nothing outlives its owner for good: the directories carry
// the owner's process and its start time, and [Tree.Sweep] of a later start
// removes those of owners that are dead and of nobody else.
//
// Entering is done by descriptors. On version 1 the kernel judges who opened the
// file, so a process without rights enters by writing "0" to each of
// [Entry.Tasks]. On version 2 a process is born in the group by clone3 with
// CLONE_INTO_CGROUP and [Entry.Dir], for which its parent needs rights to the
// directories, see [Tree.ChownForEntry]; or it writes "0" to [Entry.Tasks],
// which is slower.
//
// Version 2 with controllers has been tested against a stand-in for the file
// system only; entering and killing there against the kernel.
package cgroup

import (
	"errors"
	"log/slog"
	"os"
	"time"
)

// Config says where the control groups are.
type Config struct {
	// Root is put before /proc and before every mount point. It is empty but in
	// tests, where an ordinary directory stands in for the kernel's.
	Root string

	// Logger takes what could not be undone. Nil: nothing is logged.
	Logger *slog.Logger

	// TestOnlyMade is called after a directory was made below Root, to fill it as
	// the kernel would.
	TestOnlyMade func(dir string)
}

// Limits of one group. A field that is zero or less is no limit.
type Limits struct {
	MemoryBytes int64   // of all processes and their files in memory, swap included; the kernel rounds down to pages
	CPUCores    float64 // share of processor time in every 100 ms; at least 0.01
	MaxTasks    int     // kernel tasks, threads counted
}

// Usage is what a group took since it was made or since Set. A figure that the
// kernel does not keep, or cannot tell for this use of a group that was used
// before, is zero.
type Usage struct {
	PeakMemory int64 // bytes, swap included where the kernel counts it
	CPU        time.Duration
	PeakTasks  int
	OOMKills   int // processes that the memory limit ended
}

// Entry is the way into a group. The descriptors are closed on exec; who passes
// them on must see to it that none stays open in the code that is to be limited.
type Entry struct {
	Tasks []*os.File // a process enters by writing "0" to every one
	Dir   *os.File   // for CLONE_INTO_CGROUP; nil on version 1
}

// Close closes the descriptors. It does nothing to processes that entered.
func (e Entry) Close() error {
	var errs []error
	for _, f := range append(e.Tasks, e.Dir) {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// Names of the limits as Walls gives them, before the version.
const (
	wallMemory = "memory limit"
	wallTasks  = "task limit"
	wallCPU    = "cpu quota"
)
