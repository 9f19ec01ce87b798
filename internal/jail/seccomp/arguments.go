package seccomp

import (
	"slices"
	"strings"
)

// Commands of fcntl (linux/fcntl.h). The list names what a program needs; any other
// command does not exist (EINVAL), so that a program falls back as on an older kernel.
// Open file description locks (36 to 38) are not listed: the kernel shows no owner for
// them, so the watch on locks could not tell whose they are.
var fcntlAllowed = []uint32{
	0, 1, 2, 3, 4, // F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL
	5, 6, 7, // F_GETLK, F_SETLK, F_SETLKW
	8, 9, 10, 11, 16, 17, // F_SETOWN, F_GETOWN, F_SETSIG, F_GETSIG, F_GETOWN_EX, F_GETOWNER_UIDS
	1025, 1027, 1028, 1030, // F_GETLEASE, F_DUPFD_QUERY, F_CREATED_QUERY, F_DUPFD_CLOEXEC
	1032, 1033, 1034, // F_GETPIPE_SZ, F_ADD_SEALS, F_GET_SEALS
	1035, 1036, 1037, 1038, // F_GET_RW_HINT, F_SET_RW_HINT, F_GET_FILE_RW_HINT, F_SET_FILE_RW_HINT
}

// Commands that fail with EPERM. A lease makes every opener of the file wait for its
// holder. A notification tells what happens in a directory. A larger pipe takes from the
// pages that all processes of a user share.
const (
	fcntlSetLease = 1024
	fcntlNotify   = 1026
	fcntlSetPipe  = 1031
)

// sealShrink in the flags of F_ADD_SEALS keeps a file in memory from getting shorter. The server makes such
// files empty, to end killed programs that are in a call which copies to them. EPERM is the answer of a file
// that has no seals. For a file with execute permission, F_SEAL_EXEC sets that seal, too.
const (
	fcntlAddSeals = 1033
	sealShrink    = 2
	sealExec      = 0x20
)

// fileAsync in the flags of F_SETFL has the kernel send a signal when a file becomes ready.
// The process that makes it ready spends the time, for each of the receivers: the server,
// when it reads a program's output. FIOASYNC of ioctl does the same.
const (
	fcntlSetFlags = 4
	fileAsync     = 0x2000
	fioAsync      = 0x5452
)

// fcntlSetOwner chooses who gets a file's signals (F_SETOWN). A negative value is a process group, all of whose
// processes get one when urgent data arrives (MSG_OOB). Meanwhile interrupts are off, and no process of the host can
// start or end. F_SETOWN_EX, FIOSETOWN and SIOCSPGRP name a group behind a pointer, so they are not listed.
const fcntlSetOwner = 8

// directOf returns the flag that has a file read from the disk to the program's memory (O_DIRECT, asm/fcntl.h).
// No signal ends such a read before the disk has read all that the call asks for, and a program may have many of
// them wait. EINVAL is the answer of file systems that do not read so.
func directOf(a Arch) uint32 {
	if a == ARM64 {
		return 0x10000
	}
	return 0x4000
}

func openRules(rules map[string]rule, a Arch) {
	refuse := func(flags uint8) rule {
		return rule{[]clause{{[]test{anyBit(flags, directOf(a))}, Refuse(errEINVAL)}}, Allow}
	}
	rules["openat"] = refuse(2)
	if a == AMD64 { // the others have only the call above
		rules["open"] = refuse(1)
	}
}

// The kernel reads command and flags as 32 bits.
func fcntlRule(a Arch) rule {
	return rule{[]clause{
		{[]test{equal(1, fcntlSetFlags), anyBit(2, fileAsync)}, Refuse(errEINVAL)},
		{[]test{equal(1, fcntlSetFlags), anyBit(2, directOf(a))}, Refuse(errEINVAL)},
		{[]test{equal(1, fcntlSetOwner), anyBit(2, negative)}, Refuse(errEINVAL)},
		{[]test{equal(1, fcntlAddSeals), anyBit(2, sealShrink|sealExec)}, Refuse(errEPERM)},
		{[]test{oneOf(1, fcntlAllowed)}, Allow},
		{[]test{oneOf(1, []uint32{fcntlSetLease, fcntlNotify, fcntlSetPipe})}, Refuse(errEPERM)},
	}, Refuse(errEINVAL)}
}

// Levels of setsockopt (linux/socket.h, linux/in.h).
const (
	levelIP     = 0
	levelSocket = 1
	levelTCP    = 6
	levelUDP    = 17
	levelIPv6   = 41
)

// socketOption lists the options of one level that a program may set.
type socketOption struct {
	level   uint32
	options []uint32
}

// socketOptions lists every option that a program may set. Some of the others allocate
// kernel memory that no limit counts: multicast groups, TCP-MD5 and TCP-AO keys, filters,
// corked datagrams, IPv6 extension headers, flow labels, saved SYNs. Others change the
// whole host: timestamps, UDP encapsulation, TCP transmit delay, least hop counts (MINTTL,
// MINHOPCOUNT), upper-layer protocols.
var socketOptions = []socketOption{
	{levelSocket, []uint32{
		2, 5, 9, 10, 11, 12, 13, 14, 15, // REUSEADDR, DONTROUTE, KEEPALIVE, OOBINLINE, NO_CHECK, PRIORITY, LINGER, BSDCOMPAT, REUSEPORT
		16, 18, 20, 21, 25, 40, 42, 66, 67, // PASSCRED, RCVLOWAT, RCVTIMEO, SNDTIMEO, BINDTODEVICE, RXQ_OVFL, PEEK_OFF, RCVTIMEO_NEW, SNDTIMEO_NEW
	}},
	{levelTCP, []uint32{
		1, 2, 3, 4, 5, 6, 7, 8, 9, 10, // NODELAY, MAXSEG, CORK, KEEPIDLE, KEEPINTVL, KEEPCNT, SYNCNT, LINGER2, DEFER_ACCEPT, WINDOW_CLAMP
		12, 13, 16, 17, 18, 23, 25, 30, 36, // QUICKACK, CONGESTION, THIN_LINEAR_TIMEOUTS, THIN_DUPACK, USER_TIMEOUT, FASTOPEN, NOTSENT_LOWAT, FASTOPEN_CONNECT, INQ
	}},
	{levelIPv6, []uint32{
		16, 17, 18, 19, 23, 24, 26, 29, // UNICAST_HOPS, MULTICAST_IF, MULTICAST_HOPS, MULTICAST_LOOP, MTU_DISCOVER, MTU, V6ONLY, MULTICAST_ALL
		49, 50, 51, 52, 60, 62, 66, 67, // RECVPKTINFO, PKTINFO, RECVHOPLIMIT, HOPLIMIT, RECVPATHMTU, DONTFRAG, RECVTCLASS, TCLASS
		70, 72, 74, 76, 77, 78, // AUTOFLOWLABEL, ADDR_PREFERENCES, RECVORIGDSTADDR, UNICAST_IF, RECVFRAGSIZE, FREEBIND
	}},
	{levelIP, []uint32{
		1, 2, 8, 10, 12, 13, 15, 20, // TOS, TTL, PKTINFO, MTU_DISCOVER, RECVTTL, RECVTOS, FREEBIND, RECVORIGDSTADDR
		24, 32, 33, 34, 49, 50, 51, // BIND_ADDRESS_NO_PORT, MULTICAST_IF, MULTICAST_TTL, MULTICAST_LOOP, MULTICAST_ALL, UNICAST_IF, LOCAL_PORT_RANGE
	}},
	{levelUDP, []uint32{101, 102, 103}}, // NO_CHECK6_TX, NO_CHECK6_RX, SEGMENT
}

// ignoredOptions are set with success and change nothing. The kernel lowers the values of
// SO_SNDBUF and SO_RCVBUF silently, so programs accept that. IP_RECVERR and IPV6_RECVERR
// keep errors in a queue of the socket that no limit counts. The resolver of glibc gives
// up if it cannot set them, and does not read the queue. SO_BROADCAST would allow sending one
// datagram to all sockets of a port; the kernel refuses that without it (EACCES).
var ignoredOptions = []socketOption{
	{levelSocket, []uint32{6, 7, 8}},
	{levelIP, []uint32{11}},
	{levelIPv6, []uint32{25}},
}

// Level and option are int in the kernel: low words only.
func setsockoptRule() rule {
	var cs []clause
	for _, o := range socketOptions {
		for _, i := range ignoredOptions {
			if i.level == o.level { // next to each other, so that the filter tests the level once
				cs = append(cs, clause{[]test{equal(1, i.level), oneOf(2, i.options)}, ignore})
			}
		}
		cs = append(cs, clause{[]test{equal(1, o.level), oneOf(2, o.options)}, Allow})
	}
	return rule{cs, Refuse(errENOPROTOOPT)}
}

// initPID is the number of the process that guards a sandbox, as its programs see it
// in their pid namespace.
const initPID = 1

// Values of the first argument of setpriority and ioprio_set that name all processes
// of a user (linux/resource.h, linux/ioprio.h).
const (
	priorityUser  = 2
	ioprioUser    = 3
	callingItself = 0
)

// SCHED_IDLE with or without SCHED_RESET_ON_FORK (linux/sched.h). A thread of this policy runs when
// no other of its sandbox wants to. It may hold a lock of the kernel while it waits, such as that of
// all mounts. Setting it succeeds and changes nothing.
const (
	policyIdle  = 5
	resetOnFork = 0x40000000
)

// classShift and idleClass are the I/O class of ioprio_set whose requests wait for all others
// (linux/ioprio.h). A page of a shared file that is read so stays locked meanwhile.
const (
	classShift = 13
	idleClass  = 3
	classMask  = 7 << classShift
)

// negative is the sign of a nice value, which is an int. Only a value above 0 gives a thread less
// than its share.
const negative = 0x80000000

// processRules keep a program from changing the init that guards it. Both have one
// user, so that neither the kernel nor Landlock keeps them apart. In a pid namespace
// init is process 1, and its process group has no number there; without one its number is any, and a
// program changes itself alone.
//
// Three changes succeed and change nothing. A thread that others of its sandbox go before, by
// SCHED_IDLE, a nice value or the idle I/O class, may hold a lock of the whole host while it waits.
// To move a running thread to another processor, the kernel stops that thread by one of its own,
// whose time no limit counts.
func (p Policy) processRules(rules map[string]rule) {
	idle := masked(1, ^uint32(resetOnFork), policyIdle)
	p.changeProcess(rules, "prlimit64", 0, nil)
	p.changeProcess(rules, "sched_setparam", 0, nil)
	p.changeProcess(rules, "sched_setscheduler", 0, []clause{{[]test{idle}, ignore}})
	p.changeProcess(rules, "sched_setaffinity", 0, []clause{{nil, ignore}})
	p.changeProcess(rules, "setpriority", 1, []clause{{[]test{anyBit(2, negative)}, Allow}, {nil, ignore}}, equal(0, priorityUser))
	p.changeProcess(rules, "ioprio_set", 1, []clause{{[]test{masked(2, classMask, idleClass<<classShift)}, ignore}}, equal(0, ioprioUser))
}

// changeProcess makes the rule of a call whose argument who names a process. The call is refused if
// one of the tests in never holds, or if the process may not be changed. Otherwise the clauses
// decide. If none of them matches, the call is allowed.
func (p Policy) changeProcess(rules map[string]rule, name string, who uint8, clauses []clause, never ...test) {
	var cs []clause
	for _, n := range never {
		cs = append(cs, clause{[]test{n}, Refuse(errEPERM)})
	}
	if !p.variant.SelfOnly {
		cs = append(cs, clause{[]test{equal(who, initPID)}, Refuse(errEPERM)})
		rules[name] = rule{append(cs, clauses...), Allow}
		return
	}
	for _, c := range append(clauses, clause{nil, Allow}) {
		cs = append(cs, clause{append([]test{equal(who, callingItself)}, c.when...), c.then})
	}
	rules[name] = rule{cs, Refuse(errEPERM)}
}

// coreLimit is RLIMIT_CORE (asm-generic/resource.h).
const coreLimit = 4

// coreRules keep the limit on core dumps at 1 byte, which a sandbox begins with. Where
// the host has a program that takes core dumps, the kernel starts it outside of the
// sandbox for each crash, also with a limit of 0. A limit of 1 is what stops that.
// Programs set 0 to have no dump. They are told that it worked, unless they ask for the
// value before in the same call.
func coreRules(rules map[string]rule) {
	low, high := anyBit(2, 0xffffffff), test{arg: 2, high: true, any: true, want: 0xffffffff} // a new value is given
	r := rules["prlimit64"]
	r.clauses = append([]clause{
		{[]test{equal(1, coreLimit), low, anyBit(3, 0xffffffff)}, Refuse(errEPERM)},
		{[]test{equal(1, coreLimit), low}, ignore},
		{[]test{equal(1, coreLimit), high}, ignore},
	}, r.clauses...)
	rules["prlimit64"] = r
	rules["setrlimit"] = rule{[]clause{{[]test{equal(0, coreLimit)}, ignore}}, Allow}
}

// Ways to a descriptor of a process (linux/sched.h, asm-generic/socket.h). Such a descriptor
// becomes ready at the end of its process. The kernel wakes all that watch it then, while no
// process of the host can start or end, and a program can have millions watch it. SO_PASSPIDFD
// and pidfd_getfd are refused, too.
const (
	clonePidfd = 0x00001000
	peerPidfd  = 77 // SO_PEERPIDFD
)

func pidfdRules(rules map[string]rule) {
	rules["pidfd_open"] = rule{otherwise: Refuse(errENOSYS)}
	r := rules["getsockopt"]
	r.clauses = append(r.clauses, clause{[]test{equal(1, levelSocket), equal(2, peerPidfd)}, Refuse(errENOPROTOOPT)})
	rules["getsockopt"] = r
	r = rules["clone"]
	r.clauses = append(r.clauses, clause{[]test{anyBit(0, clonePidfd)}, Refuse(errEINVAL)})
	rules["clone"] = r
}

// zeroCopyReceive maps the pages of received packets (TCP_ZEROCOPY_RECEIVE, linux/tcp.h). A mapped page
// no longer counts for its socket, and no memory limit counts it.
const zeroCopyReceive = 35

// Filters of multicast sources (IP_MSFILTER, MCAST_MSFILTER, linux/in.h). The kernel reads the question from the
// program's memory under the lock that all changes of network interfaces on the host need, and the making of
// network namespaces. A program can make that wait for seconds. It can have no such filter.
const (
	sourceFilter    = 41
	multicastFilter = 48
)

func receiveClauses() []clause {
	return []clause{
		{[]test{equal(1, levelIP), oneOf(2, []uint32{sourceFilter, multicastFilter})}, Refuse(errENOPROTOOPT)},
		{[]test{equal(1, levelIPv6), equal(2, multicastFilter)}, Refuse(errENOPROTOOPT)},
		{[]test{equal(1, levelTCP), equal(2, zeroCopyReceive)}, Refuse(errENOPROTOOPT)},
	}
}

// Flags that take memory from the host's pool of huge pages, which no memory limit
// counts (linux/mman.h, linux/shm.h, linux/memfd.h).
const (
	mapHugePages   = 0x40000
	shmHugePages   = 0x800
	memfdHugePages = 0x4
	memfdUnknown   = 0x03ffffe0 // bits of no flag
)

func hugePageRules(rules map[string]rule) {
	refuse := func(arg uint8, bit uint32) rule {
		return rule{[]clause{{[]test{anyBit(arg, bit)}, Refuse(errENOMEM)}}, Allow}
	}
	rules["mmap"] = refuse(3, mapHugePages)
	rules["shmget"] = refuse(2, shmHugePages)
	// The kernel refuses unknown flags first. Chromium asks with all bits set whether the call
	// exists, and ends if the answer is another.
	r := refuse(1, memfdHugePages)
	r.clauses = append([]clause{{[]test{anyBit(1, memfdUnknown)}, Refuse(errEINVAL)}}, r.clauses...)
	rules["memfd_create"] = r
}

// Operations that load a filter of system calls. The compiled form comes from a pool
// of the whole host; without it no further sandbox could be built. EINVAL is what a
// kernel without filters answers.
const (
	seccompSetFilter = 1  // of seccomp
	prctlSetSeccomp  = 22 // of prctl
	prctlFilter      = 2  // its mode
)

func (p Policy) filterRules(rules map[string]rule) {
	rules["seccomp"] = rule{[]clause{{[]test{equal(0, seccompSetFilter)}, Refuse(errEINVAL)}}, Allow}
	rules["prctl"] = p.prctlRule(clause{[]test{equal(0, prctlSetSeccomp), equal(1, prctlFilter)}, Refuse(errEINVAL)})
}

// advices lists what a program may tell about its memory (linux/mman.h). Any other advice does not exist
// (EINVAL), as on an older kernel. Not listed are:
//   - MADV_MERGEABLE: a kernel thread merges pages, at the host's cost and with pages of other sandboxes. A
//     program can find that out by the time that a write takes.
//   - MADV_COLLAPSE and MADV_GUARD_INSTALL: no signal, not even SIGKILL, ends them before they have walked a
//     range, which may have terabytes without memory. MADV_GUARD_INSTALL makes page tables for all of it.
//   - MADV_PAGEOUT: it checks for a signal only after 512 pages, and visits all mappings of a file for each.
//     It also moves memory into the host's swap, where the memory watch does not see it.
//   - MADV_COLD: it splits each large page that is mapped in part, and visits all mappings of the file for that.
//   - MADV_REMOVE: it makes holes, see holeRule.
var advices = []uint32{
	0, 1, 2, 3, 4, // MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED
	8, 10, 11, // MADV_FREE, MADV_DONTFORK, MADV_DOFORK
	13, 14, 15, 16, 17, 18, 19, // MADV_UNMERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP, MADV_WIPEONFORK, MADV_KEEPONFORK
	22, 23, 24, // MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_DONTNEED_LOCKED
}

// adviseFree (MADV_FREE) visits each page that the page tables of a range name, and no signal ends it. Page
// tables name 512 times their own size, for example in zero pages, which take no memory. From longRange on it
// is refused. Allocators then use MADV_DONTNEED, which empties the tables, so that the next call is short.
//
// adviseWillNeed (MADV_WILLNEED) visits each page that the file of a mapping has in memory, again for each mapping
// in the range. A process may have 65 530 mappings of one file. No signal ends the call, and a kernel without
// preemption runs nothing else on that processor. From longRange on it succeeds and does nothing.
const (
	adviseWillNeed = 3
	adviseFree     = 8
	longRange      = 256 << 20 // bytes; a power of two
)

func adviceRule() rule {
	var cs []clause
	for _, long := range []test{anyBit(1, ^uint32(longRange-1)), {arg: 1, high: true, any: true, want: 0xffffffff}} {
		cs = append(cs, clause{[]test{equal(2, adviseWillNeed), long}, ignore}, clause{[]test{equal(2, adviseFree), long}, Refuse(errEINVAL)})
	}
	return rule{append(cs, clause{[]test{oneOf(2, advices)}, Allow}), Refuse(errEINVAL)}
}

// mincoreRule refuses lengths of 4 GiB and more. No signal, not even SIGKILL, ends the call before it has
// checked each page of the range, and a range without memory may have terabytes. A program would go on
// for minutes after its sandbox was killed. The kernel returns ENOMEM for a range with a gap.
func mincoreRule() rule {
	return rule{[]clause{{[]test{{arg: 1, high: true, any: true, want: 0xffffffff}}, Refuse(errENOMEM)}}, Allow}
}

// readNoWait has preadv2 return instead of reading a page from the disk (RWF_NOWAIT, linux/fs.h). So it
// tells which pages of a visible file the host has read, as cachestat does. EOPNOTSUPP is the answer of
// files that do not know the flag.
const readNoWait = 8

func vectorRule() rule {
	return rule{[]clause{{[]test{anyBit(5, readNoWait)}, Refuse(errEOPNOTSUPP)}}, Allow}
}

// Ways of lseek that look for data or a hole in a file (SEEK_DATA, SEEK_HOLE, linux/fs.h). In a file in memory the
// kernel visits all pages from the offset on, while other calls for the file wait. No signal ends the call or the
// wait, and each task can be in such a call.
const (
	seekData = 3
	seekHole = 4
)

// seekRule answers as a kernel without these ways does. Programs that copy files then read all of them.
func seekRule() rule {
	return rule{[]clause{{[]test{oneOf(2, []uint32{seekData, seekHole})}, Refuse(errEINVAL)}}, Allow}
}

// keepSize is the only mode of fallocate that a program may use (FALLOC_FL_KEEP_SIZE, linux/falloc.h).
const keepSize = 1

// holeRule refuses to make holes in a file. The kernel then visits all mappings of the file, of which each
// process can have 65 530, while other calls for the file wait. No signal ends the call or the wait, and each
// task can be in such a call. EOPNOTSUPP is the answer of file systems that make no holes; programs then
// write zeros.
func holeRule() rule {
	return rule{[]clause{{[]test{anyBit(1, ^uint32(keepSize))}, Refuse(errEOPNOTSUPP)}}, Allow}
}

// Calls that do many things at once. No signal ends them before they have done all of them.
//
// One datagram may go to many sockets of a sandbox, as many segments, which takes up to milliseconds. sendmmsg
// sends up to 1024. Without it (ENOSYS) programs use sendmsg. The resolver of glibc sends 2 and libuv 20.
//
// recvmmsg receives any number, also the same one again (MSG_PEEK), and "end of file" of a stream for each. Libuv
// receives 20.
//
// An operation of semop that ends a wait makes the kernel try all other waiting calls again, with the
// array locked, so that the time grows with the square of their number. Each call may have up to 500
// operations. E2BIG is the answer of a kernel with a lower limit (kernel.sem).
//
// semctl can set all values of an array. It then visits one number for each semaphore and each task that has used
// the array with SEM_UNDO, with the array locked. An array may have 32 000 semaphores. EINVAL is the answer of a
// kernel with a lower limit.
const (
	datagramsAtOnce  = 32 // a power of two, likewise below
	receivedAtOnce   = 256
	operationsAtOnce = 8
	semaphoresAtOnce = 1024
)

func manyRules(rules map[string]rule) {
	rules["sendmmsg"] = rule{[]clause{{[]test{anyBit(2, ^uint32(datagramsAtOnce-1))}, Refuse(errENOSYS)}}, Allow}
	rules["recvmmsg"] = rule{[]clause{{[]test{anyBit(2, ^uint32(receivedAtOnce-1))}, Refuse(errENOSYS)}}, Allow}
	for _, name := range []string{"semop", "semtimedop"} {
		rules[name] = rule{[]clause{{[]test{anyBit(2, ^uint32(operationsAtOnce-1))}, Refuse(errE2BIG)}}, Allow}
	}
	rules["semget"] = rule{[]clause{{[]test{anyBit(1, ^uint32(semaphoresAtOnce-1))}, Refuse(errEINVAL)}}, Allow}
	rules["futex"] = rule{[]clause{{[]test{masked(1, futexOperation, waitToRequeue)}, Refuse(errENOSYS)}, {[]test{masked(1, futexOperation, requeueToPI)}, Refuse(errENOSYS)}}, Allow}
}

// Operations of futex that move waiting threads to a lock with priority inheritance (FUTEX_WAIT_REQUEUE_PI,
// FUTEX_CMP_REQUEUE_PI, linux/futex.h). One call moves any number of them. For each the kernel walks the chain
// of threads that wait for each other, up to 1024, and its processor does nothing else meanwhile. The C libraries do
// not use these operations (glibc up to 2.24 did). ENOSYS is the answer of a kernel without them.
const (
	waitToRequeue  = 11
	requeueToPI    = 12
	futexOperation = 0x7f // the bits without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME
)

// A call that waits for manyFiles files or more is a notice. A call waits for a file once for each time that it
// names the file. What makes the file ready wakes all of these waits at once, with interrupts off. No memory
// limit counts them. In a sandbox that may have many tasks, init refuses to wait for more, see
// noticed in init.c.
const manyFiles = 64 // a power of two

func pollRules(rules map[string]rule, a Arch) {
	many := func(count uint8) rule {
		return rule{[]clause{{[]test{anyBit(count, ^uint32(manyFiles-1))}, Notify}}, Allow}
	}
	rules["ppoll"], rules["pselect6"] = many(1), many(0)
	if a == AMD64 { // the others have only the calls above
		rules["poll"], rules["select"] = many(1), many(0)
	}
}

// adviseNotNeeded drops a file from the host's memory (linux/fadvise.h).
const adviseNotNeeded = 4

// diskRules keep programs from what goes to the host's disk through files that they may
// only read: fsync has the disk write its cache, sync_file_range writes what the host has changed in a
// file, and an advice takes files from memory that others read. All that a program can write is in
// memory, where these do nothing. So they succeed and do nothing.
func diskRules(rules map[string]rule) {
	rules["fsync"] = rule{otherwise: ignore}
	rules["fdatasync"] = rule{otherwise: ignore}
	rules["sync_file_range"] = rule{otherwise: ignore}
	rules["fadvise64"] = rule{[]clause{{[]test{equal(3, adviseNotNeeded)}, ignore}}, Allow}
}

// Options of prctl that are refused with EINVAL. The exceptions are prctlDumpable and prctlLargePages; see
// Variant.Watched. Merged memory is refused as by adviceRule. Core
// scheduling keeps the other threads of a processor core idle, also for the host. A table
// of futexes takes up to a gigabyte by one call. That memory is neither resident nor in
// page tables, so the watch does not see it. A process that adopts the children of others
// can come to have thousands in another process group, and then its end stops the host. With
// PR_SET_MM_MAP a process makes its command line and environment as long as its address space,
// for the programs of the host that read them. That option of PR_SET_MM needs no capability.
const (
	prctlDumpable       = 4  // PR_SET_DUMPABLE
	prctlAddresses      = 35 // PR_SET_MM
	prctlSubreaper      = 36
	prctlLargePages     = 41 // PR_SET_THP_DISABLE
	prctlCoreScheduling = 62
	prctlMemoryMerge    = 67
	prctlFutexHash      = 78
)

// parentSignal has the kernel send a signal to a thread when its parent ends (PR_SET_PDEATHSIG, linux/prctl.h).
// It does so for each thread of each child, and may visit all threads of a process for each signal. Meanwhile no
// process of the host can start or end. Init lets only first threads of processes choose a signal, see noticed in
// init.c. After SIGKILL, a process gets no further signal.
const (
	parentSignal = 1
	sigKill      = 9
)

func (p Policy) prctlRule(more ...clause) rule {
	if p.variant.Notices {
		more = append(more,
			clause{[]test{equal(0, parentSignal), oneOf(1, []uint32{0, sigKill})}, Allow},
			clause{[]test{equal(0, parentSignal)}, Notify})
	}
	if p.variant.Watched {
		more = append(more, clause{[]test{equal(0, prctlDumpable), equal(1, 0)}, Refuse(errEPERM)})
		if !p.variant.AllowSetns { // AllowSetns is for the fork server, whose forks disable huge pages and become dumpable themselves
			more = append(more, clause{[]test{equal(0, prctlLargePages)}, Refuse(errEPERM)}, clause{[]test{equal(0, prctlDumpable)}, ignore})
		}
	}
	return rule{append(more,
		clause{[]test{oneOf(0, []uint32{prctlAddresses, prctlSubreaper, prctlCoreScheduling, prctlMemoryMerge, prctlFutexHash, prctlFutexHash + 1})}, Refuse(errEINVAL)},
		clause{[]test{oneOf(0, prctlNamed)}, Allow},
		clause{[]test{anyBit(0, ^uint32(prctlNumbers-1))}, Refuse(errEINVAL)},
		clause{[]test{masked(0, 0x70, 0x50)}, Refuse(errEINVAL)}, // 80 to 95
		clause{[]test{masked(0, 0x60, 0x60)}, Refuse(errEINVAL)}, // 96 to 127
	), Allow}
}

// Options of prctl that Linux 6.18 does not have fail with EINVAL, as it answers itself. Its highest number is that of
// the table of futexes. Some options have a name of four letters for a number: PR_SET_VMA, PR_SET_PTRACER, PR_GET_AUXV.
const prctlNumbers = 128 // a power of two above all numbers

var prctlNamed = []uint32{0x53564d41, 0x59616d61, 0x41555856}

// attributeNames set an extended attribute, whose size is the fourth argument. An access
// list is one, too: it may have 64 KiB for each file, and no memory limit counts it. An
// attribute below attributeSize takes less than the file itself, which is counted.
const (
	attributeNames = `setxattr lsetxattr fsetxattr`
	attributeSize  = 128 // a power of two
)

// The kernel refuses a size that has more than 32 bits.
func attributeRules(rules map[string]rule) {
	for name := range strings.FieldsSeq(attributeNames) {
		rules[name] = rule{[]clause{{[]test{anyBit(3, ^uint32(attributeSize-1))}, Refuse(errENOSPC)}}, Allow}
	}
}

// Bits of a file's mode (linux/stat.h), and flags of open with which it makes a file and so
// has a mode (asm-generic/fcntl.h).
const (
	setIDBits   = 0o6000
	openCreates = 0x40 | 0x400000 // O_CREAT, __O_TMPFILE
)

// renameWhiteout has renameat2 make a device in place of the file (linux/fs.h). Neither a capability
// nor a right of Landlock is needed for that.
const renameWhiteout = 4

// hostFileRules refuse every call that can set the bits, and whiteouts. The kernel reads a mode as 16
// bits. openat2, which passes its mode by a pointer, is absent. mkdir ignores the bits.
func hostFileRules(rules map[string]rule, a Arch) {
	type place struct{ mode, flags uint8 }
	const none = 0xff
	places := map[string]place{
		"fchmod": {1, none}, "fchmodat": {2, none}, "fchmodat2": {2, none}, "mknodat": {2, none}, "openat": {3, 2},
	}
	if a == AMD64 { // the others have only the calls above
		places["chmod"], places["mknod"], places["creat"], places["open"] = place{1, none}, place{1, none}, place{1, none}, place{2, 1}
	}
	for name, p := range places {
		when := []test{anyBit(p.mode, setIDBits)}
		if p.flags != none {
			when = append(when, anyBit(p.flags, openCreates))
		}
		rules[name] = rule{append(slices.Clone(rules[name].clauses), clause{when, Refuse(errEPERM)}), Allow}
	}
	rules["renameat2"] = rule{[]clause{{[]test{anyBit(4, renameWhiteout)}, Refuse(errEINVAL)}}, Allow}
}

// oneOf holds when the low word of an argument is one of values, which must not be empty.
func oneOf(arg uint8, values []uint32) test {
	return test{arg: arg, mask: 0xffffffff, among: slices.Clone(values)}
}
