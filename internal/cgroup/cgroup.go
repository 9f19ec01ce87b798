// Package cgroup limits the memory, CPU time and number of tasks of processes, by cgroups
// of version 1 and version 2.
//
// A limit is reported only if the kernel returns it when it is read back. [Open] makes a
// group, sets limits, reads them back and removes the group. If that fails, its error
// tells the operator why. Directories of dead servers do not stay: their names contain the
// owner's process id and start time, and [Tree.Sweep] of a later server removes those whose
// owner is dead.
//
// Processes enter a group by descriptors. On version 1 the kernel checks the permission of
// the process that opened the file. A process without capabilities thus enters by writing
// "0" to each of [Entry.Tasks]. On version 2 a process is cloned into the group by clone3
// with CLONE_INTO_CGROUP and [Entry.Dir]. Its parent needs write permission for the
// directories; see [Tree.ChownForEntry]. It may also write "0" to [Entry.Tasks], which is
// slower.
//
// Limits of version 2 have only been tested against an imitation of the file system;
// entering and killing on version 2 have been tested against the kernel.
package cgroup

import (
	"errors"
	"log/slog"
	"os"
	"time"
)

// Config configures Open.
type Config struct {
	// Root is prepended to /proc and to every mount point. Only tests set it, to use
	// an ordinary directory in place of the kernel's file systems.
	Root string

	// Spare keeps the group of the trial for the caller, see [Tree.Spare]. Version 1 only: on version 2 the
	// figures of a group cannot be reset.
	Spare bool

	// Logger logs failed cleanups. Nil: nothing is logged.
	Logger *slog.Logger

	// TestOnlyMade is called after a directory was made below Root, to fill it with
	// the files that the kernel would make.
	TestOnlyMade func(dir string)
}

// Limits of one group. A field of zero or less means no limit.
type Limits struct {
	MemoryBytes int64   // memory and swap of all processes, including files in tmpfs; rounded down to pages
	CPUCores    float64 // CPU time per wall-clock time, enforced in periods of 100 ms; at least 0.01
	MaxTasks    int     // processes and threads
}

// Usage is what a group has used since it was made or since Set. A figure is zero if the
// kernel does not record it, or records it only for the whole life of a reused group.
type Usage struct {
	PeakMemory int64 // bytes, including swap if the kernel counts it
	CPU        time.Duration
	PeakTasks  int
	OOMKills   int // processes that were killed because of the memory limit
}

// Entry holds the descriptors by which processes enter a group. They are close-on-exec. If
// they are passed to another process, it must close them before it runs limited code.
type Entry struct {
	Tasks []*os.File // a process enters by writing "0" to each
	Dir   *os.File   // directory for CLONE_INTO_CGROUP; nil on version 1
	kept  bool       // Tasks stay open, for the next entry
}

// Close closes the descriptors. Processes that have entered stay in the group.
func (e Entry) Close() error {
	var errs []error
	if !e.kept {
		for _, f := range e.Tasks {
			errs = append(errs, f.Close())
		}
	}
	if e.Dir != nil {
		errs = append(errs, e.Dir.Close())
	}
	return errors.Join(errs...)
}

// Names of limits in the result of Group.Walls, without the version.
const (
	wallMemory = "memory limit"
	wallTasks  = "task limit"
	wallCPU    = "cpu quota"
)
