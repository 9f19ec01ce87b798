package seccomp_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// verdict is a call and what becomes of it.
type verdict struct {
	variant seccomp.Variant
	name    string
	args    [6]uint64
	want    seccomp.Verdict
}

// checkVerdicts compares cases with the policy and with the filter of each architecture.
func checkVerdicts(t *testing.T, cases []verdict) {
	t.Helper()
	for _, a := range arches {
		for _, c := range cases {
			call := seccomp.Call{Audit: a.AuditValue(), Number: numberOf(t, a, c.name), Args: c.args}
			if got := seccomp.New(c.variant).Decide(a, call); got != c.want {
				t.Errorf("%s policy: %s%x: got %v, want %v", a, c.name, c.args, got, c.want)
			}
			if got := compiled(t, c.variant, a).run(t, call); got != c.want {
				t.Errorf("%s filter: %s%x: got %v, want %v", a, c.name, c.args, got, c.want)
			}
		}
	}
}

// TestFilesInMemoryStayEmptiable: no program sets a seal that keeps a file in memory from getting shorter, also not
// by F_SEAL_EXEC, which sets it, too.
func TestFilesInMemoryStayEmptiable(t *testing.T) {
	const addSeals = 1033
	none, refused := seccomp.Variant{}, seccomp.Refuse(1)
	checkVerdicts(t, []verdict{
		{none, "fcntl", [6]uint64{0, addSeals, 2}, refused},
		{none, "fcntl", [6]uint64{0, addSeals, 0x20}, refused},
		{none, "fcntl", [6]uint64{0, addSeals, 0x1d}, seccomp.Allow},
	})
}

// TestVerdictsOnEndlessCalls: a call that no signal ends does not go on for as long as a program wants.
func TestVerdictsOnEndlessCalls(t *testing.T) {
	const high, willNeed = 1 << 32, 3
	none, full, ignored, absent, invalid := seccomp.Variant{}, seccomp.Variant{NoSharedMemory: true}, seccomp.Verdict(0x50000), seccomp.Refuse(38), seccomp.Refuse(22)
	checkVerdicts(t, []verdict{
		{none, "madvise", [6]uint64{0, 256<<20 - 4096, willNeed}, seccomp.Allow},
		{none, "madvise", [6]uint64{0, 256 << 20, willNeed | high}, ignored}, // the pages of a file for each mapping
		{full, "madvise", [6]uint64{0, 1 << 40, willNeed}, ignored},
		{none, "recvmmsg", [6]uint64{3, 1, 255}, seccomp.Allow},
		{none, "recvmmsg", [6]uint64{3, 1, 256 | high}, absent},
		{none, "openat", [6]uint64{3, 0, 0x14000 | high}, invalid}, // O_DIRECT of both architectures
		{seccomp.Variant{HostFiles: true}, "openat", [6]uint64{3, 0, 0x14000}, invalid},
		{none, "fcntl", [6]uint64{3, 4, 0x14000}, invalid},
	})
}

// TestSignalsOfAFileGoToOneProcess: no program has a file signal a process group.
func TestSignalsOfAFileGoToOneProcess(t *testing.T) {
	const setOwner, setOwnerEx, getOwner = 8, 15, 9
	none, invalid := seccomp.Variant{}, seccomp.Refuse(22)
	checkVerdicts(t, []verdict{
		{none, "fcntl", [6]uint64{0, setOwner, 4096}, seccomp.Allow},
		{none, "fcntl", [6]uint64{0, setOwner, 0xfffff000}, invalid},
		{none, "fcntl", [6]uint64{0, setOwnerEx}, invalid},
		{none, "fcntl", [6]uint64{0, getOwner}, seccomp.Allow},
		{none, "ioctl", [6]uint64{0, 0x8901}, seccomp.Refuse(25)}, // FIOSETOWN
		{none, "ioctl", [6]uint64{0, 0x8902}, seccomp.Refuse(25)}, // SIOCSPGRP
		{none, "ioctl", [6]uint64{0, 0x8904}, seccomp.Allow},      // SIOCGPGRP
	})
}

// TestVerdictsOnWhatManyTasksDo: work that grows with the square of the tasks waits for init, or is refused.
func TestVerdictsOnWhatManyTasksDo(t *testing.T) {
	const high = 1 << 32
	none, noticed, invalid, absent := seccomp.Variant{}, seccomp.Variant{Notices: true}, seccomp.Refuse(22), seccomp.Refuse(38)
	checkVerdicts(t, []verdict{
		{none, "prctl", [6]uint64{1, 15}, seccomp.Allow}, // PR_SET_PDEATHSIG
		{noticed, "prctl", [6]uint64{1, 15}, seccomp.Notify},
		{noticed, "prctl", [6]uint64{1 | high, 9 | high}, seccomp.Allow}, // the kernel refuses it
		{noticed, "prctl", [6]uint64{1, 0}, seccomp.Allow},
		{noticed, "prctl", [6]uint64{4, 15}, seccomp.Allow},
		{none, "prctl", [6]uint64{36, 1}, invalid},    // PR_SET_CHILD_SUBREAPER
		{none, "prctl", [6]uint64{37}, seccomp.Allow}, // PR_GET_CHILD_SUBREAPER
		{none, "semget", [6]uint64{3, 1023 | high}, seccomp.Allow},
		{none, "semget", [6]uint64{3, 1024}, invalid}, // one call visits as many numbers for each task
		{none, "semget", [6]uint64{3, 0}, seccomp.Allow},
		{none, "futex", [6]uint64{0, 11}, absent}, // FUTEX_WAIT_REQUEUE_PI
		{none, "futex", [6]uint64{0, 11 | 128 | 256 | high}, absent},
		{none, "futex", [6]uint64{0, 12}, absent}, // FUTEX_CMP_REQUEUE_PI
		{noticed, "futex", [6]uint64{0, 12 | 128}, absent},
		{none, "futex", [6]uint64{0, 4 | 128}, seccomp.Allow}, // FUTEX_CMP_REQUEUE
		{none, "futex", [6]uint64{0, 13 | 128}, seccomp.Allow},
		{none, "ppoll", [6]uint64{0, 64}, seccomp.Allow},
		{noticed, "ppoll", [6]uint64{0, 64}, seccomp.Notify},
		{noticed, "ppoll", [6]uint64{64, 63 | high}, seccomp.Allow},
		{noticed, "pselect6", [6]uint64{64, 0}, seccomp.Notify},
		{noticed, "pselect6", [6]uint64{1 << 31, 0}, seccomp.Notify}, // the kernel refuses it
		{noticed, "pselect6", [6]uint64{63 | high, 64}, seccomp.Allow},
		{none, "setpgid", [6]uint64{}, seccomp.Allow},
		{noticed, "setpgid", [6]uint64{}, seccomp.Notify},
	})
}

// TestNoProgramLooksForHoles: no signal ends the call before it has visited all pages of a file in memory.
func TestNoProgramLooksForHoles(t *testing.T) {
	refused := seccomp.Refuse(22)
	for _, v := range []seccomp.Variant{{}, {NoSharedMemory: true, Watched: true}, {SelfOnly: true}, {AllowSetns: true}} {
		checkVerdicts(t, []verdict{
			{v, "lseek", [6]uint64{3, 0, 2}, seccomp.Allow},   // SEEK_END
			{v, "lseek", [6]uint64{3, 0, 3}, refused},         // SEEK_DATA
			{v, "lseek", [6]uint64{3, 0, 4 | 1<<32}, refused}, // SEEK_HOLE; the kernel reads the low word
			{v, "lseek", [6]uint64{3, 3, 5}, seccomp.Allow},
		})
	}
}

// TestNoProgramReachesIPCOfTheHost: without an IPC namespace, System V IPC is refused. memfd_create is not.
func TestNoProgramReachesIPCOfTheHost(t *testing.T) {
	none, host, absent := seccomp.Variant{}, seccomp.Variant{NoIPC: true}, seccomp.Refuse(38)
	for _, name := range []string{"shmget", "semget", "semop"} {
		checkVerdicts(t, []verdict{{none, name, [6]uint64{}, seccomp.Allow}, {host, name, [6]uint64{}, absent}})
	}
	checkVerdicts(t, []verdict{{host, "memfd_create", [6]uint64{}, seccomp.Allow}})
}

// TestNoProgramMakesMessageQueues: with Landlock alone, mq_open would make a queue that it cannot open, which takes bytes
// from the limit of the host's user.
func TestNoProgramMakesMessageQueues(t *testing.T) {
	for _, v := range []seccomp.Variant{{}, {NoIPC: true}, {NoSharedMemory: true, Watched: true}, {AllowSetns: true}} {
		checkVerdicts(t, []verdict{{v, "mq_open", [6]uint64{}, seccomp.Refuse(38)}})
	}
}

// TestPairsReachNoOtherSocket: without sockets of its own, a program gets no pair that can send to the path of a host's
// socket.
func TestPairsReachNoOtherSocket(t *testing.T) {
	none, refused := seccomp.Variant{NoSockets: true}, seccomp.Refuse(97)
	checkVerdicts(t, []verdict{
		{none, "socketpair", [6]uint64{1, 1}, seccomp.Allow},
		{none, "socketpair", [6]uint64{1, 5 | 0x80800}, seccomp.Allow}, // with SOCK_CLOEXEC and SOCK_NONBLOCK
		{none, "socketpair", [6]uint64{1, 2 | 0x80800}, refused},
		{none, "socketpair", [6]uint64{1, 3}, refused}, // the kernel takes it for datagrams
		{seccomp.Variant{}, "socketpair", [6]uint64{1, 2}, seccomp.Allow},
	})
}
