package seccomp

import "strings"

// refusedNames fail with EPERM. Some of them are not in the baseline and would fail with
// ENOSYS. They are listed so that a program sees a lack of permission and not an old
// kernel.
const refusedNames = `
	ptrace process_vm_readv process_vm_writev pidfd_getfd process_madvise process_mrelease kcmp
	mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr mount_setattr
	unshare setns sethostname setdomainname
	bpf perf_event_open userfaultfd memfd_secret modify_ldt
	keyctl add_key request_key
	open_by_handle_at name_to_handle_at
	fanotify_init fanotify_mark quotactl quotactl_fd lookup_dcookie
	sync syncfs
	adjtimex clock_adjtime clock_settime settimeofday
	syslog vhangup acct reboot kexec_load kexec_file_load init_module finit_module delete_module swapon swapoff
	iopl ioperm
	move_pages migrate_pages mbind set_mempolicy set_mempolicy_home_node get_mempolicy`

// absentNames fail with ENOSYS even if the baseline allows them, so that programs fall back
// to an older call. clone3 passes its flags by a pointer, where a filter cannot see them,
// and setxattrat passes its size so. The queues of io_setup are counted for the whole host,
// so one sandbox could use them all up.
//
// The descriptors of timerfd_create and signalfd4 become ready in an interrupt of a timer.
// That wakes each epoll set that watches them, and a program can make millions of watches.
// No limit on processor time counts the time of interrupts.
//
// inotify has every process of the host that opens, reads or changes a visible file wake
// the watchers, in its own time. A watch of a directory locks it while the kernel looks
// through all its names, also those that do not exist and that the program has asked for.
//
// sched_setattr lets a program choose how long it runs before others of the same processor
// do, up to 100 ms. It passes that by a pointer.
//
// cachestat tells which pages of a file the host has in memory. Before Linux 6.13 it does so for every
// visible file, also while another sandbox reads it.
//
// openat2 can tell whether the kernel has the names of a path in memory (RESOLVE_CACHED), and so which visible
// files other sandboxes have opened. It passes its flags by a pointer.
//
// futex_waitv waits at up to 128 addresses at once. A wake walks all waits at an address, and its
// processor does nothing else meanwhile.
//
// vmsplice keeps pages in a pipe. They may be pages of a visible file of the host, or a whole huge page
// for a single byte.
//
// mq_open makes a message queue even if Landlock then refuses to open it. If the server is not root, all sandboxes share
// the bytes that its user may have in queues (RLIMIT_MSGQUEUE), so they could leave none for other programs of that user.
const absentNames = `mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
	clone3 io_uring_setup io_uring_enter io_uring_register listmount statmount io_setup setxattrat cachestat sched_setattr vmsplice futex_waitv openat2
	timerfd_create signalfd signalfd4 inotify_init inotify_init1 inotify_add_watch inotify_rm_watch`

// movedPageNames are calls that put pages of a file into a pipe or a socket without copying them. The
// kernel makes such pages for /dev/zero or a file in /proc, for example, and no memory limit counts them.
// A socket counts the bytes that were moved, not the pages. EINVAL is the kernel's error for files that do
// not support the call. Programs then read and write.
const movedPageNames = `splice sendfile`

// systemVNames are the calls of System V IPC.
const systemVNames = `shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl semget semop semctl semtimedop`

// sharedMemoryNames are calls that make memory which belongs to no process.
const sharedMemoryNames = `memfd_create ` + systemVNames

// landlockNames make sets of rules, which the kernel keeps for each descriptor and each process that
// has restricted itself. No memory limit but that of a cgroup counts them, and a kernel thread frees
// them. The sandbox's own are loaded before the filter.
const landlockNames = `landlock_create_ruleset landlock_add_rule landlock_restrict_self`

// shadowStackName maps memory that RLIMIT_DATA does not limit.
const shadowStackName = `map_shadow_stack`

// rule decides on one system call. The first clause whose tests all hold gives the verdict.
// If there is no such clause, otherwise does.
type rule struct {
	clauses   []clause
	otherwise Verdict
}

type clause struct {
	when []test
	then Verdict
}

// test checks one 32-bit word of an argument. If among is set, the word must be one of its
// values. If any is set, at least one bit of want must be set in the word. Otherwise the
// bits of the word in mask must equal want.
type test struct {
	arg   uint8
	high  bool
	any   bool
	mask  uint32
	want  uint32
	among []uint32
}

func equal(arg uint8, want uint32) test { return masked(arg, 0xffffffff, want) }
func masked(arg uint8, mask, want uint32) test {
	return test{arg: arg, mask: mask, want: want}
}
func anyBit(arg uint8, bits uint32) test { return test{arg: arg, any: true, want: bits} }
func highWord(arg uint8, want uint32) test {
	return test{arg: arg, high: true, mask: 0xffffffff, want: want}
}

// rulesOf returns the rules of all system calls that do not fail with ENOSYS by default, by
// name. Later assignments override earlier ones.
func (p Policy) rulesOf(a Arch) map[string]rule {
	rules := map[string]rule{}
	set := func(names []string, v Verdict) {
		for _, n := range names {
			rules[n] = rule{otherwise: v}
		}
	}
	set(baselineOf(a), Allow)
	set(strings.Fields(refusedNames), Refuse(errEPERM))
	set(strings.Fields(absentNames), Refuse(errENOSYS))
	set(strings.Fields(movedPageNames), Refuse(errEINVAL))

	rules["clone"] = cloneRule()
	rules["ioctl"] = ioctlRule()
	rules["fcntl"] = fcntlRule(a)
	openRules(rules, a)
	rules["socket"] = p.socketRule()
	rules["setsockopt"] = setsockoptRule()
	rules["prctl"] = p.prctlRule()
	rules["close_range"] = closeRangeRule()
	rules["madvise"] = adviceRule()
	rules["mincore"] = mincoreRule()
	rules["preadv2"] = vectorRule()
	rules["lseek"] = seekRule()
	rules["fallocate"] = holeRule()
	rules["getsockopt"] = rule{receiveClauses(), Allow}
	diskRules(rules)
	manyRules(rules)
	rules["socketpair"] = p.pairRule()
	rules["personality"] = rule{
		[]clause{{[]test{equal(0, 0)}, Allow}, {[]test{equal(0, 0xffffffff)}, Allow}}, Refuse(errEPERM),
	}

	p.processRules(rules)
	attributeRules(rules)
	hugePageRules(rules)
	if !p.variant.AllowSetns { // forks of the fork server load the filter of a sandbox and set limits themselves
		p.filterRules(rules)
		coreRules(rules)
		pidfdRules(rules)
	}
	if !p.variant.AllowSetns && !p.variant.SelfOnly { // forks of the fork server, and programs that init starts without a pid namespace, restrict themselves under the filter
		set(strings.Fields(landlockNames), Refuse(errENOSYS))
	}
	if p.variant.Notices {
		rules["epoll_ctl"] = rule{[]clause{{[]test{equal(1, epollAdd)}, Notify}}, Allow}
		rules["setpgid"] = rule{otherwise: Notify}
		pollRules(rules, a)
	}
	if p.variant.NoSharedMemory {
		set(strings.Fields(sharedMemoryNames), Refuse(errENOSYS))
		set(strings.Fields(shadowStackName), Refuse(errENOSYS))
		rules["mmap"] = privateMmapRule()
	}
	if p.variant.NoIPC {
		set(strings.Fields(systemVNames), Refuse(errENOSYS))
	}
	p.commandRules(rules)
	if p.variant.NoSockets {
		set([]string{"socket"}, Refuse(errEAFNOSUPPORT))
	}
	if p.variant.HostFiles {
		hostFileRules(rules, a)
	}
	if p.variant.NoAttributes {
		p.wideRules(rules, a)
	}
	if p.variant.NoTruncate {
		truncateRules(rules)
	}
	p.startRules(rules)
	if p.variant.Watched {
		set([]string{"sched_setaffinity"}, Refuse(errEPERM))
	}
	if p.variant.AllowSetns {
		set([]string{"setns", "process_madvise"}, Allow)
	}
	return rules
}

// Flags of clone (linux/sched.h). The kernel uses the low word of the argument.
// CLONE_NEWTIME shares its bit with the exit signal, for which it is not a valid value; it
// is refused with the other namespaces. CLONE_PARENT would make the child a child of the
// process outside the sandbox that started the caller, and that process would have to reap
// it.
const (
	cloneNewTime   = 0x00000080
	cloneFiles     = 0x00000400
	clonePtrace    = 0x00002000
	cloneParent    = 0x00008000
	cloneThread    = 0x00010000
	cloneNewNS     = 0x00020000
	cloneUntraced  = 0x00800000
	cloneNewCgroup = 0x02000000
	cloneNewUTS    = 0x04000000
	cloneNewIPC    = 0x08000000
	cloneNewUser   = 0x10000000
	cloneNewPID    = 0x20000000
	cloneNewNet    = 0x40000000

	cloneRefused = cloneNewTime | clonePtrace | cloneParent | cloneNewNS | cloneUntraced |
		cloneNewCgroup | cloneNewUTS | cloneNewIPC | cloneNewUser | cloneNewPID | cloneNewNet
)

// The flags are the first argument on both architectures. A thread must share the
// descriptor table and a process must not, so that each process has exactly one table.
// Record locks belong to a table. Locks of a table that processes share outlive the process
// that took them, and do not show their owner. Locks of two tables of one process cannot be
// distinguished.
func cloneRule() rule {
	return rule{[]clause{
		{[]test{anyBit(0, cloneRefused)}, Refuse(errEPERM)},
		{[]test{masked(0, cloneFiles|cloneThread, cloneFiles)}, Refuse(errEPERM)},
		{[]test{masked(0, cloneFiles|cloneThread, cloneThread)}, Refuse(errEPERM)},
	}, Allow}
}

// closeRangeUnshare gives a thread its own descriptor table (linux/close_range.h).
const closeRangeUnshare = 2

func closeRangeRule() rule {
	return rule{[]clause{{[]test{anyBit(2, closeRangeUnshare)}, Refuse(errEINVAL)}}, Allow}
}

// epollAdd is EPOLL_CTL_ADD (linux/eventpoll.h), the second argument of epoll_ctl.
const epollAdd = 1

// Families, types and protocols of socket (linux/socket.h, linux/net.h, linux/in.h).
const (
	familyUnix  = 1
	familyInet  = 2
	familyInet6 = 10

	typeMask     = 0xf // SOCK_TYPE_MASK; the other bits are SOCK_CLOEXEC and SOCK_NONBLOCK
	typeStream   = 1
	typeDatagram = 2
	typeRaw      = 3
	typeSequence = 5
	typePacket   = 10 // turns the inet family into the packet family

	protoAny = 0
	protoTCP = 6
	protoUDP = 17
)

// pairRule is the rule of socketpair. A socket for datagrams can send to the path of any Unix socket, so a sandbox that has
// no sockets of its own gets connected pairs only.
func (p Policy) pairRule() rule {
	local := equal(0, familyUnix)
	clauses := []clause{{[]test{local}, Allow}}
	if p.variant.NoSockets {
		clauses = []clause{{[]test{local, masked(1, typeMask, typeStream)}, Allow}, {[]test{local, masked(1, typeMask, typeSequence)}, Allow}}
	}
	return rule{clauses, Refuse(errEAFNOSUPPORT)}
}

// All three arguments are int in the kernel, so only the low words are compared. Netlink is
// not allowed, because data that waits in its sockets is memory that no limit counts. A
// program that lists its interfaces gets the error of a kernel without netlink. A type and
// a protocol that do not match are refused here. Otherwise the kernel would start modprobe
// on the host, as root, to look for a module.
func (p Policy) socketRule() rule {
	families := []uint32{familyInet, familyInet6}
	if p.variant.NoIPv6 {
		families = families[:1]
	}
	inet, inetVerdict := oneOf(0, families), Allow
	if p.variant.Notices {
		inetVerdict = Notify
	}
	return rule{[]clause{
		{[]test{equal(0, familyUnix)}, Allow},
		{[]test{inet, masked(1, typeMask, typeRaw)}, Refuse(errEPERM)},
		{[]test{inet, masked(1, typeMask, typePacket)}, Refuse(errEPERM)},
		{[]test{inet, masked(1, typeMask, typeStream), oneOf(2, []uint32{protoAny, protoTCP})}, inetVerdict},
		{[]test{inet, masked(1, typeMask, typeDatagram), oneOf(2, []uint32{protoAny, protoUDP})}, inetVerdict},
	}, Refuse(errEAFNOSUPPORT)}
}

// Flags of mmap. MAP_SHARED and MAP_SHARED_VALIDATE both have the first bit; MAP_PRIVATE
// has not.
const (
	mapSharedBit = 0x01
	mapAnonymous = 0x20
	mapGrowsDown = 0x100
)

// privateMmapRule is the rule for a sandbox that limits memory per process. A mapping that grows down
// is a stack for the kernel, which RLIMIT_DATA does not limit.
func privateMmapRule() rule {
	both := uint32(mapSharedBit | mapAnonymous)
	return rule{[]clause{
		{[]test{masked(3, both, both)}, Refuse(errENOMEM)},
		{[]test{anyBit(3, mapHugePages|mapGrowsDown)}, Refuse(errENOMEM)},
	}, Allow}
}
