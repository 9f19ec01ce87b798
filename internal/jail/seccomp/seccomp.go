// Package seccomp is a system-call policy and its compiler: an allow-list that
// decides over every system call of a program in a sandbox, and the filter
// program for the kernel that decides the same.
//
// The promise: what the list does not name does not exist (ENOSYS, so that a
// program falls back as it would on an older kernel), what is known to be
// dangerous is refused (EPERM), and a call of another architecture's table, such
// as int 0x80 on amd64, ends the process. Calls of the x32 table do not exist.
// No argument check can be passed by setting bits that the kernel ignores: an
// argument that the kernel takes as a 32-bit integer is compared in its low word
// only.
//
// The list is the default profile of Moby as it applies to a process without
// capabilities, less what a sandbox should not have; see [New].
//
// What it does not do: it does not look behind pointers, so it cannot judge paths,
// addresses or clone3, which therefore does not exist. It allows prctl except for filters
// of system calls, tables of futexes and core scheduling: other options that reach beyond
// the caller need a capability (PR_SET_MM needs CAP_SYS_RESOURCE). It cannot tell a shared
// mapping of /dev/zero, which is anonymous shared memory, from a file; the caller of this
// package gives no right to write to /dev/zero.
//
// Nothing here loads a filter. The package holds no state, needs no particular
// platform, and all of it may be called concurrently.
package seccomp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"
	"strconv"
)

// Arch is an architecture that filters are compiled for, named as GOARCH names it.
type Arch string

// The architectures there are tables for.
const (
	AMD64 Arch = "amd64"
	ARM64 Arch = "arm64"
)

// Native is the architecture this program was built for; false when there is no
// table for it, in which case no filter can be had.
func Native() (Arch, bool) {
	a := Arch(runtime.GOARCH)
	return a, a == AMD64 || a == ARM64
}

// Audit values by which the kernel names the table that a call came through
// (linux/audit.h).
const (
	auditAMD64 = 0xc000003e
	auditARM64 = 0xc00000b7
)

// AuditValue is the number by which the kernel names the architecture in
// seccomp_data; 0 for an unknown one.
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

// Verdict is what happens to a call, in the kernel's own encoding of a filter's
// return value.
type Verdict uint32

// Verdicts without a number of their own; see [Refuse] for the others.
const (
	Allow       Verdict = 0x7fff0000 // SECCOMP_RET_ALLOW
	KillProcess Verdict = 0x80000000 // SECCOMP_RET_KILL_PROCESS
	refusal     Verdict = 0x00050000 // SECCOMP_RET_ERRNO, the number in the low 16 bits
	ignore      Verdict = refusal    // the call succeeds and does nothing
)

// Error numbers of Linux, written out because this package builds where
// package syscall has other ones. Both architectures share them.
const (
	errEPERM        = 1
	errENOMEM       = 12
	errEINVAL       = 22
	errENOTTY       = 25
	errENOSPC       = 28
	errENOSYS       = 38
	errENOPROTOOPT  = 92
	errEAFNOSUPPORT = 97
)

// Refuse is the verdict that fails a call with a Linux error number.
func Refuse(errno uint16) Verdict { return refusal | Verdict(errno) }

// String is "allow", "kill" or the error number.
func (v Verdict) String() string {
	switch {
	case v == Allow:
		return "allow"
	case v == KillProcess:
		return "kill"
	case v == ignore:
		return "ignore"
	case v&0xffff0000 == refusal:
		return "errno " + strconv.Itoa(int(v&0xffff))
	default:
		return fmt.Sprintf("verdict %#x", uint32(v))
	}
}

// Variant adapts the policy to what stands around the program otherwise. The
// zero value is the policy for a full sandbox: own namespaces and a cgroup.
type Variant struct {
	// NoSharedMemory is for a sandbox whose memory is limited process by
	// process: it refuses memory that belongs to no process, which is
	// memfd_create, anonymous shared mappings and System V IPC. It also
	// refuses to move memory to swap.
	NoSharedMemory bool

	// NoSockets is for a sandbox without a network namespace: socket fails for
	// every family. A socketpair stays possible.
	NoSockets bool

	// NoIPv6 is for a kernel without IPv6. For each socket of a family that it does not
	// have, the kernel starts modprobe on the host, as root.
	NoIPv6 bool

	// NoSetAffinity refuses sched_setaffinity.
	NoSetAffinity bool

	// SelfOnly is for a sandbox without a pid namespace: a program changes the limits
	// and priorities of itself and of no other process, by the number 0.
	SelfOnly bool

	// AllowSetns is for our own fork server alone, which enters sandboxes and
	// loads their filter. Code of a user must never run under it without a further filter.
	AllowSetns bool
}

// Policy is the decision over every system call. The zero value is that of the
// zero Variant.
type Policy struct{ variant Variant }

// New makes the policy of a variant.
func New(v Variant) Policy { return Policy{variant: v} }

// SHA256 is the hex digest over the compiled filters of all architectures: two
// policies that decide alike in the same way have the same one, and it changes
// with any change of a list or of the compiler.
func (p Policy) SHA256() (string, error) {
	h := sha256.New()
	for _, a := range []Arch{AMD64, ARM64} {
		prog, err := Compile(p, a)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n", a, len(prog))
		h.Write(prog)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

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
