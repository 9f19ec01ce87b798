// -- network namespaces --------------------------------------------------------------------------------------------------------
// Those of sandboxes. init.c includes this file.

// small lists the kernel parameters of a new network namespace. They bound memory that no cgroup is charged for: TCP buffers come from
// a pool of the whole host; connections in the accept queue and in TIME_WAIT are not charged to their maker; transmit timestamps return
// a copy of each packet in a queue without a limit; control messages of a call that waits may take as much as optmem_max. Older kernels
// have the last two for the whole host only (the switch before 6.13, optmem_max before 6.8).
#define PROC_NET "/proc/sys/net/"
static const struct { const char *file, *value; ul n; int may_fail; } small[] = {
	{PROC_NET "ipv4/tcp_rmem", "4096 16384 262144", 17, 0},
	{PROC_NET "ipv4/tcp_wmem", "4096 16384 262144", 17, 0},
	{PROC_NET "core/somaxconn", "128", 3, 0},
	{PROC_NET "ipv4/tcp_max_tw_buckets", "1024", 4, 0},
	{PROC_NET "core/tstamp_allow_data", "0", 1, 1},
	{PROC_NET "core/optmem_max", "4096", 4, 1},
};

// fresh is 1 if the spawner's current network namespace is new and no sandbox has it. Packet 'N' makes one in
// advance, while the server prepares the request.
static int fresh;

static long fresh_net(void) {
	if (fresh) return 0;
	long err = sys1(SYS_unshare, 0x40000000), s;
	if (err < 0) return err;
	struct { char name[16]; short flags; char rest[22]; } lo = {"lo", 65 /* UP|RUNNING */, ""};
	s = sys3(SYS_socket, 2, 2 | 02000000, 0);
	err = sys3(SYS_ioctl, s, 0x8914 /* SIOCSIFFLAGS */, (long)&lo);
	sys1(SYS_close, s);
	for (u32 i = 0; i < sizeof small / sizeof *small && err >= 0; i++) {
		err = write_file(small[i].file, small[i].value, small[i].n);
		if (small[i].may_fail) err = 0;
	}
	fresh = err >= 0;
	return err;
}

// begin_net has a child make the network namespace of the first sandbox, while the builder's script goes on on another processor. The child
// has the builder's descriptors. If it fails, or cannot be made, no descriptor FIRST_NET is opened.
enum { FIRST_NET = COMMON + NCOMMON };
static int begun_net;

static void begin_net(void) {
	begun_net = 1;
	sys3(SYS_dup3, CTL, 2 * HIGH - 1, 02000000); // makes the table of descriptors so large that it need not grow while two processes have it,
	sys1(SYS_close, 2 * HIGH - 1);               // for which each of them would wait until all processors have been idle or left a system call
	if (sys5(SYS_clone, 0x400 /* FILES */ | SIGCHLD, 0, 0, 0, 0) != 0) return;
	long net = fresh_net();
	if (net >= 0) net = sys4(SYS_openat, AT_FDCWD, (long)"/proc/self/ns/net", 02000000, 0);
	if (net >= 0) sys3(SYS_dup3, net, FIRST_NET, 02000000), sys1(SYS_close, net);
	sys1(SYS_exit_group, 0);
}

// take_net enters the network namespace that begin_net has had made.
static void take_net(void) { fresh = begun_net && sys2(SYS_setns, FIRST_NET, 0x40000000) >= 0; }

// unused reports whether the current network namespace has no socket. One in flight between two others can outlive a sandbox's processes.
static int unused(void) {
	static const char none[] = "sockets: used 0\n";
	char text[sizeof none] = "";
	long fd = sys4(SYS_openat, AT_FDCWD, (long)"/proc/self/net/sockstat", 02000000, 0);
	int same = sys3(SYS_read, fd, (long)text, sizeof none - 1) == sizeof none - 1;
	for (ul i = 0; i < sizeof none; i++) same = same && text[i] == none[i];
	sys1(SYS_close, fd);
	return same;
}
