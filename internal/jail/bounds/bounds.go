// Package bounds says what bounds every sandbox and covers of the host's lists, whether package jail makes
// it on this machine, an engine makes it as a container, or package relay makes it in a container with a
// kernel of its own. It has no system calls, so that it is the same for an engine elsewhere.
package bounds

import (
	"strconv"
	"strings"
)

// An Rlimit is a limit of each process, soft and hard.
type Rlimit struct {
	Name   string // as container engines name it
	Number int    // of Linux
	Value  int64
}

// CoreBytes is the limit of core dumps. The kernel treats 1 specially: it does not start the host's
// core_pattern program. With 0 it would start it, as root and outside of the sandbox.
const CoreBytes = 1

// Rlimits are the limits that do not depend on the sandbox.
var Rlimits = []Rlimit{
	{"core", 4, CoreBytes},
	{"nofile", 7, 1024},
	{"memlock", 8, 1 << 20},
	{"sigpending", 11, 128}, // timers that end at once visit all threads of their process, in one interrupt
	{"msgqueue", 12, 64 << 10},
	{"nice", 13, 0},
	{"rtprio", 14, 0}, // a real-time program is held by no processor quota
}

// A Place is a file system in memory that programs can write to.
type Place struct {
	Path   string
	Mode   string // of its root
	NoExec bool
	Bytes  int64
	Files  int64
}

// LeastBytes is the smallest size of a place. With 0 the kernel would set no limit.
const LeastBytes = 4096

// Places returns the places of a sandbox. workBytes, workFiles and tempBytes are those of backend.Spec.
func Places(workBytes, workFiles, tempBytes int64) [4]Place {
	return [...]Place{
		{"/mnt/data", "700", false, max(workBytes, LeastBytes), workFiles + 1},
		{"/tmp", "1777", false, max(tempBytes, LeastBytes), 20_001},
		{"/dev/shm", "1777", true, max(tempBytes, LeastBytes), 1001},
		{"/run", "755", false, 8 << 20, 257},
	}
}

// Options returns the options of the place's mount, without its flags.
func (p Place) Options() string {
	return "mode=" + p.Mode + ",size=" + strconv.FormatInt(p.Bytes, 10) + ",nr_inodes=" + strconv.FormatInt(p.Files, 10)
}

// EngineOptions returns the options of the place's mount as container engines take them.
func (p Place) EngineOptions() string {
	if p.NoExec {
		return "rw,noexec,nosuid,nodev," + p.Options()
	}
	return "rw,exec,nosuid,nodev," + p.Options()
}

// HostLists are the directories of /proc that show the host's file systems and buses. Reading some of
// these files affects the whole host: a list of ext4 keeps all processes from making files while the
// kernel walks the inodes in memory, and a configuration of PCI wakes its device. The lists of System V
// objects are the sandbox's own, but a program can make each of them 32 000 lines long, see LongList. A kernel may
// lack some, and a module that is loaded later, as that of ZFS, adds its own.
var HostLists = [...]string{"fs", "bus", "spl", "sysvipc"}

// LongList is the list of the kernel's symbols, which has more than 100 000 lines. No signal ends a read of such a
// list before the kernel has written all lines up to the read's offset. A kernel may have none.
const LongList = "/proc/kallsyms"

// LockList is the list of locks. Reading it keeps every process of the host from locking a file.
const LockList = "/proc/locks"

// KeyLists are the files that show a user's keys in the kernel. Kernels without keys have none.
var KeyLists = [...]string{"/proc/keys", "/proc/key-users"}

// OnlyLoopback reports whether a list of network devices, as /proc/net/dev has it, names loopback and no
// other. A list without loopback was not read.
func OnlyLoopback(devices string) bool {
	found := false
	for line := range strings.Lines(devices) {
		name, _, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(name) != "lo" {
			return false
		}
		found = found || ok
	}
	return found
}
