// Package seccomp defines a system call policy and compiles it to a filter for the kernel.
// The policy is an allow-list that decides on every system call of a program in a sandbox.
//
// System calls that are not on the list fail with ENOSYS, so that a program falls back as
// on an older kernel. Dangerous ones fail with EPERM. A call through the table of another
// architecture, such as int 0x80 on amd64, kills the process. Calls through the x32 table
// fail with ENOSYS. If the kernel takes an argument as a 32-bit integer, only its low word
// is compared, so bits that the kernel ignores cannot change the verdict.
//
// The list is Moby's default profile for a process without capabilities, except for calls
// that a sandbox should not have; see [New].
//
// The filter cannot follow pointers, so it does not check paths or addresses. clone3, which
// takes its flags by a pointer, is not allowed. prctl is allowed except for seccomp filters,
// futex tables, core scheduling, the adoption of others' children, the addresses of the command line, and
// options that Linux 6.18 does not have. Other options that affect
// more than the caller need a capability. The filter cannot
// distinguish a shared mapping of /dev/zero, which is anonymous shared memory, from that of
// a file. The caller of this package must therefore not allow writing to /dev/zero.
//
// This package does not load filters. It has no state and works on every platform. All of
// it may be called concurrently.
package seccomp

import (
	"fmt"
	"runtime"
)

// Arch is an architecture for which filters are compiled, by its GOARCH name.
type Arch string

// The supported architectures.
const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
)

// Native returns the architecture that this program was built for. It returns false if that
// is not supported.
func Native() (Arch, bool) {
	a := Arch(runtime.GOARCH)
	return a, a == AMD64 || a == ARM64
}

// The kernel's names of system call tables (linux/audit.h).
const (
	auditAMD64 = 0xc000003e
	auditARM64 = 0xc00000b7
)

// AuditValue returns the number of the architecture in seccomp_data, or 0 for an unknown
// one.
func (a Arch) AuditValue() uint32 {
	switch a {
	case AMD64:
		return auditAMD64
	case ARM64:
		return auditARM64
	default:
		return 0
	}
}

// Verdict is the decision on a call, encoded as the return value of a filter.
type Verdict uint32

// Verdicts without an error number; see [Refuse] for the others.
const (
	Allow       Verdict = 0x7fff0000 // SECCOMP_RET_ALLOW
	KillProcess Verdict = 0x80000000 // SECCOMP_RET_KILL_PROCESS
	refusal     Verdict = 0x00050000 // SECCOMP_RET_ERRNO, with the error number in the low 16 bits
	ignore      Verdict = refusal    // the call succeeds and does nothing
	Notify      Verdict = 0x7fc00000 // SECCOMP_RET_USER_NOTIF: the call waits for the holder of the filter's listener; ENOSYS without one
)

// Error numbers of Linux. They are defined here because this package also builds on systems
// where package syscall has others. Both architectures have the same.
const (
	errEPERM        = 1
	errEAGAIN       = 11
	errENOMEM       = 12
	errEACCES       = 13
	errEINVAL       = 22
	errENOTTY       = 25
	errE2BIG        = 7
	errENOSPC       = 28
	errENOSYS       = 38
	errENOPROTOOPT  = 92
	errEOPNOTSUPP   = 95
	errEAFNOSUPPORT = 97
)

// Refuse returns the verdict that fails a call with a Linux error number.
func Refuse(errno uint16) Verdict { return refusal | Verdict(errno) }

// Variant adapts the policy to the other walls of a sandbox. The zero value is for a full
// sandbox with its own namespaces and a cgroup.
type Variant struct {
	// NoSharedMemory refuses memory that belongs to no process: memfd_create, anonymous
	// shared mappings and System V IPC. It is for a sandbox that limits memory per process.
	NoSharedMemory bool

	// NoSockets makes socket fail for every family. socketpair still makes connected sockets,
	// but none for datagrams. It is for a sandbox without a network namespace.
	NoSockets bool

	// NoIPC refuses System V IPC, which Landlock does not restrict. It is for a sandbox without an IPC namespace.
	NoIPC bool

	// NoIPv6 is for a kernel without IPv6. For each socket of a family that it does not
	// have, the kernel starts modprobe on the host, as root.
	NoIPv6 bool

	// Watched is for a sandbox without a cgroup, whose limits the server enforces by reading /proc. It refuses
	// sched_setaffinity. It keeps a process from hiding from a server without root (PR_SET_DUMPABLE), and from
	// enabling huge pages (PR_SET_THP_DISABLE), which can take far more memory than their mapped part. A process of an
	// unreadable program file is hidden nevertheless, and stays so. If it could show itself just before its end, another
	// process could keep its memory, which the server has not seen.
	Watched bool

	// SelfOnly allows a program to change limits and priorities only of itself, by process
	// id 0. It is for a sandbox without a pid namespace.
	SelfOnly bool

	// Notices makes some calls wait for the sandbox's init: those that create a network socket, add an
	// epoll watch, wait for many files, change a process group, or choose the signal at a parent's end.
	// The filter must then be loaded with a listener. It is for kernels on which a call that waits can be
	// killed (Linux 5.19).
	Notices bool

	// HostFiles refuses to give a file a set-user-ID or set-group-ID bit, and to leave a whiteout,
	// which is a device, where a file was. It is for a sandbox that can write to a directory of
	// the host.
	HostFiles bool

	// NoAttributes lets a program change no times, owners, extended attributes and flags of files, and no modes
	// if NoModes is set as well. It is for a sandbox without a mount namespace. NoModes is for one whose programs
	// have the user id of the server, so that files of that user are theirs.
	NoAttributes, NoModes bool

	// Command is for a program that the server starts on the host, outside of sandboxes. It is also told of
	// interfaces, routes and sockets, and its files are written to the disk when it asks for that.
	Command bool

	// NoExec executes no further program, and NoProcesses starts no process. Threads are started.
	NoExec, NoProcesses bool

	// NoTruncate lets a program empty no file that it cannot open for writing. It is for a sandbox like that of
	// NoAttributes under a Landlock that does not govern it.
	NoTruncate bool

	// Scratch avoids the instruction that copies A to X, for interpreters that get it wrong:
	// that of gVisor copies X to A (pkg/bpf/interpreter.go, September 2026). The decisions are the
	// same.
	Scratch bool

	// AllowSetns is for the product's own fork server, which enters sandboxes and loads
	// their filter. A user's code must never run under it without a further filter.
	AllowSetns bool

	// Part says what the filter has of the policy. The zero value is all of it.
	Part Part
}

// Policy decides on every system call. The zero value is that of the zero Variant.
type Policy struct{ variant Variant }

// New returns the policy of a variant.
func New(v Variant) Policy { return Policy{variant: v} }

// number is one row of an architecture's table.
type number struct {
	name string
	nr   uint32
}

func numbersOf(a Arch) ([]number, error) {
	switch a {
	case AMD64:
		return amd64Numbers(), nil
	case ARM64:
		return arm64Numbers(), nil
	default:
		return nil, fmt.Errorf("compile system-call filter: no table for architecture %q", string(a))
	}
}

func baselineOf(a Arch) []string {
	if a == ARM64 {
		return arm64Baseline()
	}
	return amd64Baseline()
}
