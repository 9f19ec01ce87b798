package seccomp_test

import (
	"testing"

	"github.com/sandboxmcp/sandboxmcp/internal/jail/seccomp"
)

// numberOf has numbers written out from the kernel's own tables
// (syscall_64.tbl and asm-generic/unistd.h), not from ours.
func numberOf(t testing.TB, a seccomp.Arch, name string) uint32 {
	t.Helper()
	table := map[string][2]uint32{
		"read": {0, 63}, "openat": {257, 56}, "execve": {59, 221}, "fsync": {74, 82}, "fdatasync": {75, 83}, "fadvise64": {221, 223}, "mq_open": {240, 180},
		"shmget": {29, 194}, "memfd_create": {319, 279}, "sync": {162, 81}, "ptrace": {101, 117},
		"process_vm_readv": {310, 270}, "unshare": {272, 97}, "setns": {308, 268}, "mount": {165, 40}, "bpf": {321, 280},
		"keyctl": {250, 219}, "memfd_secret": {447, 447}, "fanotify_mark": {301, 263}, "name_to_handle_at": {303, 264},
		"adjtimex": {159, 171}, "userfaultfd": {323, 282}, "clone3": {435, 435}, "io_uring_setup": {425, 425},
		"statmount": {457, 457}, "clone": {56, 220}, "ioctl": {16, 29}, "fcntl": {72, 25}, "socket": {41, 198}, "socketpair": {53, 199}, "epoll_ctl": {233, 21}, "setpgid": {109, 154}, "ppoll": {271, 73}, "pselect6": {270, 72},
		"personality": {135, 92}, "mmap": {9, 222}, "sched_setaffinity": {203, 122},
		"setsockopt": {54, 208}, "prlimit64": {302, 261}, "setrlimit": {160, 164}, "setpriority": {141, 140}, "sched_setparam": {142, 118},
		"sched_setscheduler": {144, 119}, "sched_setattr": {314, 274}, "ioprio_set": {251, 30}, "process_mrelease": {448, 448},
		"seccomp": {317, 277}, "prctl": {157, 167}, "setxattr": {188, 5}, "lsetxattr": {189, 6}, "fsetxattr": {190, 7}, "setxattrat": {463, 463}, "close_range": {436, 436},
		"renameat2": {316, 276}, "truncate": {76, 45}, "fchmod": {91, 52}, "fchmodat": {268, 53}, "fchmodat2": {452, 452}, "utimensat": {280, 88}, "fchown": {93, 55}, "fchownat": {260, 54}, "getxattr": {191, 8}, "fremovexattr": {199, 16}, "removexattrat": {466, 466}, "mknodat": {259, 33}, "openat2": {437, 437}, "mkdirat": {258, 34},
		"madvise": {28, 233}, "mincore": {27, 232}, "cachestat": {451, 451}, "preadv2": {327, 286}, "fallocate": {285, 47}, "lseek": {8, 62}, "vmsplice": {278, 75}, "splice": {275, 76}, "sendfile": {40, 71}, "sendmmsg": {307, 269}, "recvmmsg": {299, 243}, "sync_file_range": {277, 84}, "semtimedop": {220, 192}, "semop": {65, 193}, "semget": {64, 190}, "map_shadow_stack": {453, 453},
		"landlock_create_ruleset": {444, 444}, "landlock_add_rule": {445, 445}, "landlock_restrict_self": {446, 446},
		"inotify_add_watch": {254, 27}, "inotify_init1": {294, 26}, "timerfd_create": {283, 85}, "signalfd4": {289, 74}, "eventfd2": {290, 19},
		"futex": {202, 98}, "getsockopt": {55, 209}, "pidfd_open": {434, 434}, "pidfd_send_signal": {424, 424},
	}
	nr, ok := table[name]
	if !ok {
		t.Fatalf("%s: got no number, want one", name)
	}
	if a == seccomp.ARM64 {
		return nr[1]
	}
	return nr[0]
}
