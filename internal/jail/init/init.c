// The product's program inside of sandboxes: a static, single-threaded binary of a few pages, without a libc. Each of its processes has
// one of four roles. Spawners are forks of the builder, and inits are clones of a spawner:
//
//   launcher child of the server, with the server's rights. It makes the builder and exits, see launch.c.
//   builder  child of the server, owner of user namespace Z and PID 1 of a pid namespace around every sandbox. It runs a script that
//            makes the template root, forks the spawners and waits. When the server ends, it exits and the kernel kills all the rest.
//   spawner  clones sandboxes on request and writes their id maps. Forking a process of a few pages is much faster than forking the
//            server. To make sockets in a sandbox it forks a process that enters the network namespace, runs a script and exits.
//   init     PID 1 of a sandbox. It runs a script that puts every wall around itself, then starts programs on request; they inherit
//            the walls. It exits at end of file on its control socket, and the kernel kills whatever else is in the sandbox.
//            In a container of a container engine it is the program that the engine starts, see contained.
//
// Scripts are built, named and tested in Go (script_linux.go). This file only runs them. All packets come from the server and are
// little-endian. doc.go describes the wire.
#include "sys.h"

typedef unsigned long ul;
typedef unsigned int u32;
typedef unsigned char u8;

void *memset(void *p, int c, ul n) { u8 *q = p; while (n--) *q++ = (u8)c; return p; }
void *memcpy(void *p, const void *s, ul n) { u8 *q = p; const u8 *t = s; while (n--) *q++ = *t++; return p; }

enum { CTL = 3, MAXFD = 16, HIGH = 64, NOTICES = HIGH - 1, CHILDREN = HIGH - 2 }; // control socket; most descriptors in a packet; where
                                                        // they are moved to; see noticed; signals of children, see init
enum { COMMON = HIGH + MAXFD, NCOMMON = 8 };            // descriptors of the builder's script that each sandbox's script gets
enum { AT_FDCWD = -100, EINTR = 4, EAGAIN = 11, SIGCHLD = 17, SIGKILL = 9 };

struct iov { void *base; ul len; };
struct msg { void *name; u32 namelen; struct iov *iov; ul iovlen; void *control; ul controllen; int flags; };
struct rights { ul len; int level, type, fd[MAXFD]; };  // SCM_RIGHTS; its head has 16 bytes

static u8 buf[1 << 18] __attribute__((aligned(16)));    // one packet, 256 KiB
static struct rights got;                               // the descriptors that came with it
static int ngot;
static long nbuf;                                       // bytes in buf
static char *vec[8192];                                 // argv and envp of a program to start
static long reg[64];                                    // results of a script's calls
static int subreaper;                                   // no pid namespace: this process has to end the others itself

// receive reads one packet into buf. It returns its size, 0 at end of file, or a negative errno.
static long receive(int fd) {
	struct iov v = {buf, sizeof buf - 1};
	struct msg m = {0, 0, &v, 1, &got, sizeof got, 0};
	long n;
	got.len = 16;
	do n = sys3(SYS_recvmsg, fd, (long)&m, 0x40000000 /* MSG_CMSG_CLOEXEC */); while (n == -EINTR);
	ngot = n > 0 && m.controllen > 16 ? (int)((got.len - 16) / 4) : 0;
	if (n >= 0) buf[n] = 0;
	nbuf = n;
	return n;
}

// tell sends one packet with nfd descriptors. If the result is negative, the packet was not sent, for example because the user has too
// many descriptors in flight.
static long tell(int fd, const void *p, ul n, const int *fds, int nfd) {
	static struct rights r;
	struct iov v = {(void *)p, n};
	struct msg m = {0, 0, &v, 1, 0, 0, 0};
	if (nfd) {
		r.len = 16 + 4 * (ul)nfd, r.level = 1, r.type = 1;
		memcpy(r.fd, fds, 4 * (ul)nfd);
		m.control = &r, m.controllen = (16 + 4 * (ul)nfd + 7) & ~7ul;
	}
	return sys3(SYS_sendmsg, fd, (long)&m, 0x4000 /* MSG_NOSIGNAL */);
}

static void say(u32 kind, u32 a, u32 b) { u32 o[3] = {kind, a, b}; tell(CTL, o, sizeof o, 0, 0); }

static void close_fds(void) { for (int i = 0; i < ngot; i++) sys1(SYS_close, got.fd[i]); }

static char *number(char *p, u32 n) {
	char t[12];
	int i = 0;
	do t[i++] = (char)('0' + n % 10); while (n /= 10);
	while (i) *p++ = t[--i];
	return p;
}

// -- scripts ------------------------------------------------------------------------------------------------------------------
// A script is a list of system calls with their arguments. An argument is a number, an offset of bytes in the packet, a descriptor
// that came with the packet, or the result of an earlier call.
enum { NUMBER, BYTES, DESCRIPTOR, RESULT };
enum { MAY_FAIL = 1 };
enum { STORE64 = 0xffffffff, STORE32 = 0xfffffffe, LOAD32 = 0xfffffffd, NETWORK = 0xfffffffc }; // not system calls: store the second
                                                        // argument at the address in the first; load from the address in the first; see begin_net
static void begin_net(void);
struct call { u32 nr, flags; u8 tag[6], keep, pad; ul arg[6]; };
struct script { u32 kind, ncalls, nresults, nfds; u8 result[32], fd[16]; struct call call[]; };

// report sends the results and descriptors that a script names.
static void report(struct script *s) {
	struct { u32 kind, n; int v[32]; } out = {'R', s->nresults, {0}};
	int fds[16];
	for (u32 i = 0; i < s->nresults; i++) out.v[i] = (int)reg[s->result[i]];
	for (u32 i = 0; i < s->nfds; i++) fds[i] = (int)reg[s->fd[i]];
	if (tell(CTL, &out, sizeof out, fds, (int)s->nfds) < 0) sys1(SYS_exit_group, 1);
	for (u32 i = 0; i < s->nfds; i++) sys1(SYS_close, fds[i]);
}

// run runs a script. If a call fails, run sends its index and exits.
static void run(struct script *s) {
	for (u32 i = 0; i < s->ncalls; i++) {
		struct call *c = &s->call[i];
		long a[6];
		for (int k = 0; k < 6; k++)
			switch (c->tag[k]) {
			case BYTES: a[k] = (long)(buf + c->arg[k]); break;
			case DESCRIPTOR: a[k] = got.fd[c->arg[k]]; break;
			case RESULT: a[k] = reg[c->arg[k]]; break;
			default: a[k] = (long)c->arg[k];
			}
		long r = 0;
		if (c->nr == STORE64) *(ul *)a[0] = (ul)a[1];
		else if (c->nr == STORE32) memcpy((void *)a[0], &a[1], 4);
		else if (c->nr == LOAD32) r = *(int *)a[0];
		else if (c->nr == NETWORK) begin_net();
		else r = sys6(c->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
		if (c->keep) reg[c->keep] = r;
		if (r < 0 && !(c->flags & MAY_FAIL)) {
			say('E', i, (u32)-r);
			sys1(SYS_exit_group, 1);
		}
	}
}

// -- init ---------------------------------------------------------------------------------------------------------------------
static void end_all(void) {
	if (subreaper) // no pid namespace ends them; kill(-1) reaches this Landlock domain and nothing outside of it
		do sys2(SYS_kill, -1, SIGKILL); while (sys4(SYS_wait4, -1, 0, 0, 0) > 0);
	sys1(SYS_exit_group, 0);
}

// TERMINAL: descriptor 0 becomes the controlling terminal. EXECUTED: answer when the program is executed, and do nothing before.
enum { TERMINAL = 1, EXECUTED = 2 };
struct start { u32 kind, tag, argc, envc, nlimits, flags; ul limit[8][2]; char text[]; }; // text: directory, argv, envp
struct status { u32 kind, pid; int status; u32 maxrss; ul user, system; u32 alone, pad; }; // maxrss: KiB; user, system: microseconds; alone: no child is left

// domain puts a program without a pid namespace into a Landlock domain of its own. Its signals then reach the processes that it starts,
// but not this init, which has to kill them all. The rule allows moving files between directories (REFER), which every Landlock layer
// forbids unless it is allowed.
static long domain(void) {
	ul refer = 1 << 13, attr[3] = {refer, 0, 2 /* LANDLOCK_SCOPE_SIGNAL */};
	struct { ul allowed; int fd; } __attribute__((packed)) rule = {refer, -1};
	long d = sys3(SYS_landlock_create_ruleset, (long)attr, sizeof attr, 0), r = d;
	if (r >= 0) r = rule.fd = (int)sys4(SYS_openat, AT_FDCWD, (long)"/", 012000000 /* PATH|CLOEXEC */, 0);
	if (r >= 0) r = sys4(SYS_landlock_add_rule, d, 1 /* PATH_BENEATH */, (long)&rule, 0);
	if (r >= 0) r = sys2(SYS_landlock_restrict_self, d, 0);
	sys1(SYS_close, rule.fd);
	sys1(SYS_close, d);
	return r;
}

// start runs a program. The descriptors of the packet become its descriptors 0, 1, 2, 3 …; no other stays open. If any call fails, the
// program is not executed. So it never runs with fewer restrictions or descriptors than requested.
static void start(long n) {
	struct start *p = (struct start *)buf;
	char *t = p->text, *dir = t, *end = (char *)buf + n;
	u32 k = 0;
	while (*t++);
	for (u32 i = 0; i < p->argc && t < end && k < 4000; i++) { vec[k++] = t; while (*t++); }
	vec[k++] = 0;
	char **env = vec + k;
	for (u32 i = 0; i < p->envc && t < end && k < 8000; i++) { vec[k++] = t; while (*t++); }
	vec[k] = 0;
	long pid = sys5(SYS_clone, SIGCHLD | (p->flags & EXECUTED ? 0x4000 /* VFORK */ : 0), 0, 0, 0, 0);
	if (pid) {
		say(pid < 0 ? 'F' : 'P', p->tag, pid < 0 ? (u32)-pid : (u32)pid);
		close_fds();
		return;
	}
	ul none = 0;
	long ctl = sys3(SYS_fcntl, CTL, 1030 /* F_DUPFD_CLOEXEC */, HIGH + MAXFD), r = ctl;
	if (r >= 0) r = sys4(SYS_rt_sigprocmask, 2, (long)&none, 0, 8);
	for (int i = 0; i < ngot && r >= 0; i++) r = got.fd[i] = (int)sys3(SYS_fcntl, got.fd[i], 1030, HIGH);
	for (int i = 0; i < ngot && r >= 0; i++) r = sys3(SYS_dup3, got.fd[i], i, 0);
	if (r >= 0) r = sys3(SYS_close_range, ngot, ~0u, 4 /* CLOSE_RANGE_CLOEXEC */);
	if (r >= 0) r = sys0(SYS_setsid);
	if (r >= 0 && p->flags & TERMINAL) {                   // the first terminal that a leader of a session opens becomes its own
		r = sys4(SYS_openat, AT_FDCWD, (long)"/proc/self/fd/0", 02000002 /* RDWR|CLOEXEC */, 0);
		if (r >= 0) r = sys1(SYS_close, r);
	}
	if (r >= 0 && p->nlimits > 8) r = -22 /* EINVAL */;
	for (u32 i = 0; i < p->nlimits && r >= 0; i++) {
		ul l[2] = {p->limit[i][1], p->limit[i][1]};
		r = sys4(SYS_prlimit64, 0, (long)p->limit[i][0], (long)l, 0);
	}
	if (r >= 0 && subreaper) r = domain();
	if (r >= 0) r = sys1(SYS_chdir, (long)dir);
	if (r >= 0) r = sys3(SYS_execve, (long)vec[0], (long)vec, (long)env);
	u32 o[3] = {'F', p->tag, (u32)-r};
	tell(ctl < 0 ? CTL : (int)ctl, o, sizeof o, 0, 0);    // if the socket was not copied, descriptor CTL is still the socket
	sys1(SYS_exit_group, 127);
}

// reap reports every child that has ended. With flags 0 it waits until none is left. When a process ends, its children become children
// of this init before init can wait for the process. So if init has no child, no other process lives in the sandbox.
static void reap(int flags) {
	static ul ru[18];
	struct status s = {'X', 0, 0, 0, 0, 0, 0, 0};
	for (;;) {
		int status = 0;
		long pid = sys4(SYS_wait4, -1, (long)&status, flags | 0x40000000 /* __WALL */, (long)ru);
		if (pid == -EINTR) continue;
		if (s.pid) {
			s.alone = pid == -10 /* ECHILD */;
			tell(CTL, &s, sizeof s, 0, 0);
		}
		if (pid <= 0) return;
		s.pid = (u32)pid, s.status = status, s.maxrss = (u32)ru[4];
		s.user = ru[0] * 1000000 + ru[1], s.system = ru[2] * 1000000 + ru[3];
	}
}

// clear kills every process of the sandbox except this one, and reports when none is left.
static void clear(u32 tag) {
	sys2(SYS_kill, -1, SIGKILL);
	reap(0);
	say('A', tag, 0);
}

// The filter of this process and its programs makes some system calls wait until they are answered here: those that create a network
// socket, add an epoll watch, wait for many files, change a process group, or choose a signal for the end of a parent. Each zygote's fork
// in this sandbox has such a filter of its own. The server sends its listener ('L').
enum { LISTENERS = 16 };
static int listener[LISTENERS], nlisteners;

// A call waits until the server has done something first. While one waits, no other is answered.
static struct { int fd, nr; ul id; } waits;             // fd is -1 if none waits

// Only with a network socket can a program change the sandbox's network namespace. The first call that makes one waits until the server
// has prepared the namespace.
enum { UNTOLD, TOLD, ANSWERED };                        // before the first call; the server was notified; the server has answered
static int sockets;

// The kernel bounds no epoll watches of a sandbox, so the server counts them: programs may add only as many watches as it has
// granted since. When half of these are left, it is asked to count again. When none is left, calls wait for its grant.
enum { FIRST = 64 };
static u32 granted, asked;                              // watches that programs may add; the server is asked when so many are left

// When a process ends, the kernel visits each of its children in another process group of its session. For each it visits all ended
// members of that group. Meanwhile no process of the host can start or end, and no processor that waits for that takes interrupts. So in a
// sandbox that may have many tasks ('J') no process may come to have many such children. A process changes only its own group, with one
// thread and without children. Programs join others' groups only as often as 'J' says. They cannot adopt others' children, see prctlRule.
static int crowd;
static u32 joins, most;                                 // how often programs have joined others' groups, and may

// single reports whether a process, which waits in a call, has one thread and no children. It may not if its files in /proc are hidden.
static int single(u32 pid) {
	char path[64] = "/proc/", *e = number(path + 6, pid), c;
	static struct { u32 mask, blksize; ul attributes; u32 nlink; char rest[236]; } of; // struct statx
	static const char task[] = "/task", children[] = "/children";
	memcpy(e, task, sizeof task), e += sizeof task - 1;
	if (sys5(SYS_statx, AT_FDCWD, (long)path, 0, 4 /* NLINK */, (long)&of) < 0 || of.nlink != 3) return 0; // 2, and each thread
	*e++ = '/', e = number(e, pid);
	memcpy(e, children, sizeof children);
	long fd = sys4(SYS_openat, AT_FDCWD, (long)path, 02000000, 0);
	long n = sys3(SYS_read, fd, (long)&c, 1);
	sys1(SYS_close, fd);
	return n == 0;
}

// groups reports whether a process may change a process group.
static int groups(u32 pid, u32 whose, u32 group) {
	if (!crowd) return 1;
	if ((whose && whose != pid) || !single(pid)) return 0;
	return group == 0 || group == pid || (joins < most && ++joins);
}

// may reports whether a call may go on now.
static int may(int nr) {
	if (nr == SYS_epoll_ctl) {
		if (granted == 0) return 0;
		if (--granted == asked) say('W', 0, 0);
		return 1;
	}
	if (sockets == UNTOLD) sockets = TOLD, say('N', 0, 0);
	return sockets == ANSWERED;
}

// answer lets a call go on, or fail with a negative errno.
static void answer(int fd, ul id, int error) {
	struct { ul id; long value; int error; u32 flags; } a = {id, 0, error, error ? 0 : 1 /* CONTINUE */};
	sys3(SYS_ioctl, fd, 0xc0182101 /* NOTIF_SEND */, (long)&a); // fails if the program has ended
}

// decide lets a call go on or wait.
static void decide(int fd, int nr, ul id) {
	if (!may(nr)) { waits.fd = fd, waits.nr = nr, waits.id = id; return; }
	answer(fd, id, 0);
}

// again decides about the call that waits.
static void again(void) {
	int fd = waits.fd;
	waits.fd = -1;
	if (fd >= 0) decide(fd, waits.nr, waits.id);
}

// polls reports whether a call waits for many files.
static int polls(int nr) {
#ifdef SYS_poll
	if (nr == SYS_poll || nr == SYS_select) return 1;
#endif
	return nr == SYS_ppoll || nr == SYS_pselect6;
}

// noticed receives a call of a program.
static void noticed(int fd) {
	struct { ul id; u32 pid, flags; int nr; u32 arch; ul ip, args[6]; } call;
	memset(&call, 0, sizeof call);
	if (sys3(SYS_ioctl, fd, 0xc0502100 /* NOTIF_RECV */, (long)&call) < 0) return; // the program has ended
	// an event of a file wakes each wait of each call, with interrupts off
	if (polls(call.nr)) answer(fd, call.id, crowd ? -22 /* EINVAL */ : 0);
	// At a parent's end, the kernel sends a signal to each thread that has chosen one, and may visit all threads of a process for each. So
	// only first threads may choose a signal.
	else if (call.nr == SYS_prctl) answer(fd, call.id, sys3(SYS_tgkill, call.pid, call.pid, 0) == 0 ? 0 : -22 /* EINVAL */);
	else if (call.nr == SYS_setpgid) answer(fd, call.id, groups(call.pid, (u32)call.args[0], (u32)call.args[1]) ? 0 : -1 /* EPERM */);
	else decide(fd, call.nr, call.id);
}

// listen answers the calls that a filter's listener reports. It takes the descriptor.
static void listen(int fd) {
	if (nlisteners == LISTENERS) { sys1(SYS_close, fd); return; } // its calls now fail
	sys3(SYS_ioctl, fd, 0x40082104 /* NOTIF_SET_FLAGS */, 1 /* SYNC_WAKE_UP: stay on this processor; since Linux 6.6 */);
	listener[nlisteners++] = fd;
}

static void unlisten(int i) {
	if (waits.fd == listener[i]) waits.fd = -1;
	sys1(SYS_close, listener[i]);
	listener[i] = listener[--nlisteners];
}

// init serves the server's requests. Its script has opened a signalfd for SIGCHLD at descriptor CHILDREN, because the filter now refuses
// signalfd.
static void init(void) {
	ul chld = 1ul << (SIGCHLD - 1);
	u8 info[128];
	// end_all uses kill(-1), which must not reach the parent: that runs as the same user, outside of the Landlock domain
	if (subreaper && sys2(SYS_kill, sys0(SYS_getppid), 0) != -1 /* EPERM */) sys1(SYS_exit_group, 1);
	sys4(SYS_rt_sigprocmask, 0, (long)&chld, 0, 8);
	if (sys3(SYS_fcntl, CHILDREN, 1 /* F_GETFD */, 0) < 0) sys1(SYS_exit_group, 1);
	reap(1 /* WNOHANG */); // a zygote may have forked into this sandbox after the script was done, and the fork may have ended
	waits.fd = -1, granted = FIRST, asked = FIRST / 2;
	struct { int fd; short events, revents; } p[2 + LISTENERS] = {{CTL, 1, 0}, {CHILDREN, 1, 0}};
	if (sys3(SYS_fcntl, NOTICES, 1 /* F_GETFD */, 0) >= 0) listen(NOTICES);
	for (;;) {
		int n = nlisteners;
		for (int i = 0; i < n; i++) {
			p[2 + i].fd = listener[i], p[2 + i].revents = 0;
			p[2 + i].events = waits.fd < 0;                // POLLIN
		}
		sys5(SYS_ppoll, (long)p, 2 + n, 0, 0, 8);
		if (p[0].revents) {                            // first, because a packet may change the answers to calls
			long n = receive(CTL);
			u32 *h = (u32 *)buf;
			if (n == -EAGAIN) continue;
			if (n <= 0) end_all();
			if (h[0] == 'S' && n > (long)sizeof(struct start)) start(n);
			else if (h[0] == 'K' && n >= 12) {
				sys2(SYS_kill, (int)h[1], (int)h[2]);
				if (n >= 16) say('A', h[3], 0);
				close_fds();
			}
			else if (h[0] == 'C' && n >= 8) { clear(h[1]); close_fds(); }
			else if (h[0] == 'G' && n >= 8) { granted = h[1], asked = h[1] / 2; again(); close_fds(); }
			else if (h[0] == 'N') { sockets = ANSWERED; again(); close_fds(); }
			else if (h[0] == 'J' && n >= 8) { crowd = 1, most = h[1]; close_fds(); }
			else if (h[0] == 'L' && ngot == 1) listen(got.fd[0]);
			else if (h[0] == 'Q') end_all();
			else close_fds();
			continue;
		}
		for (int i = n - 1; i >= 0; i--) {             // backwards, because unlisten moves the last one
			if (p[2 + i].revents & 1 && waits.fd < 0) noticed(listener[i]);
			else if (p[2 + i].revents & ~1) unlisten(i);   // POLLHUP: no process has the filter any more
		}
		if (p[1].revents) {
			sys3(SYS_read, CHILDREN, (long)info, sizeof info);
			reap(1 /* WNOHANG */);
		}
	}
}

// -- spawner ------------------------------------------------------------------------------------------------------------------
static long write_file(const char *file, const char *s, ul n) {
	long fd = sys4(SYS_openat, AT_FDCWD, (long)file, 02000001 /* WRONLY|CLOEXEC */, 0);
	if (fd < 0) return fd;
	long r = sys3(SYS_write, fd, (long)s, (long)n);
	sys1(SYS_close, fd);
	return r;
}

static long put(u32 pid, const char *file, const char *s, ul n) {
	char p[48] = "/proc/", *e = number(p + 6, pid);
	while ((*e++ = *file++));
	return write_file(p, s, n);
}

// make describes a sandbox. GROUPS: setgroups stays allowed (the server is root). PLAIN: no namespaces (tier L1). HAVE_NET: enter the
// passed network namespace. CHECK_NET: make and return a new one in its place if it has a socket. WANT_NET: return the new one. INTO_CGROUP:
// clone into the passed cgroup v2 group. ONCE: not a sandbox but a process that exits after its script. OWN_IDS: of a launcher. Descriptors:
// control socket, [network namespace], [cgroup], then those of the script.
enum { GROUPS = 1, PLAIN = 2, HAVE_NET = 4, WANT_NET = 8, INTO_CGROUP = 16, ONCE = 32, OWN_IDS = 64, CHECK_NET = 128 };
struct make { u32 kind, mode; ul flags; u32 outer, inner, offset, pad; };

// map_ids writes the id maps of a process: n ids from the first of each pair on, outside of its namespace from the second.
static long map_ids(u32 pid, u32 mode, const u32 *uid, const u32 *gid, u32 n) {
	long err = mode & GROUPS ? 0 : put(pid, "/setgroups", "deny", 4);
	for (int i = 0; i < 2 && err >= 0; i++) {
		const u32 *id = i ? gid : uid;
		char b[40], *e = number(b, id[0]);
		*e++ = ' ', e = number(e, id[1]), *e++ = ' ', e = number(e, n);
		err = put(pid, i ? "/gid_map" : "/uid_map", b, (ul)(e - b));
	}
	return err;
}

#include "net.c"

static long clone_sandbox(struct make *q, int cgroup, int *pidfd) {
	if (cgroup < 0) return sys5(SYS_clone, (long)(q->flags | 0x1000 /* PIDFD */ | SIGCHLD), 0, (long)pidfd, 0, 0);
	ul a[11] = {q->flags | 0x1000 | 0x200000000ul /* INTO_CGROUP */, (ul)pidfd, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, (ul)cgroup};
	return sys2(SYS_clone3, (long)a, sizeof a);
}

// spawn makes one sandbox. In the parent it answers 'S' with a pidfd, or 'E'. In the child it does not return.
static void spawn(void) {
	struct make *q = (struct make *)buf;
	int k = 1, go[2] = {-1, -1}, pidfd = -1, cgroup = -1, made = !(q->mode & (HAVE_NET | PLAIN));
	long net = -1, err = 0, pid;
	// A network namespace belongs to user namespace Z. The spawner enters it before the clone; the child, in user namespace T, may not.
	if (q->mode & HAVE_NET) {
		net = got.fd[k++];
		err = sys2(SYS_setns, net, 0x40000000);
		fresh = 0;
		made = err >= 0 && q->mode & CHECK_NET && !unused();
	}
	if (made) {
		err = fresh_net(), fresh = 0, net = -1; // it belongs to this sandbox now
		if (err >= 0 && q->mode & (WANT_NET | CHECK_NET)) net = sys4(SYS_openat, AT_FDCWD, (long)"/proc/self/ns/net", 02000000, 0);
		if (net < 0 && q->mode & CHECK_NET && err >= 0) err = net; // the server would take the passed one for the sandbox's
	}
	if (q->mode & INTO_CGROUP) cgroup = got.fd[k++];
	if (err >= 0) err = sys2(SYS_pipe2, (long)go, 02000000);
	pid = err < 0 ? err : clone_sandbox(q, cgroup, &pidfd);
	if (pid == 0) {
		char c;
		sys1(SYS_close, go[1]);
		if (sys3(SYS_read, go[0], (long)&c, 1) != 1) sys1(SYS_exit_group, 1); // wait until the parent has written the id maps
		for (int i = 0; i < ngot; i++) got.fd[i] = (int)sys3(SYS_fcntl, got.fd[i], 1030, HIGH);
		sys3(SYS_dup3, got.fd[0], CTL, 02000000);
		sys3(SYS_close_range, CTL + 1, HIGH - 1, 0);
		sys3(SYS_close_range, COMMON + NCOMMON, ~0u, 0);
		for (int i = k; i < ngot; i++) got.fd[i - k] = got.fd[i];
		subreaper = !!(q->mode & PLAIN);
		struct { ul handler, flags, restorer, mask; } dfl = {0, 0, 0, 0};
		sys4(SYS_rt_sigaction, SIGCHLD, (long)&dfl, 0, 8); // the spawner ignores it, and the child inherits that
		struct script *s = (struct script *)(buf + q->offset);
		run(s);
		report(s);
		if (q->mode & ONCE) sys1(SYS_exit_group, 0);
		sys3(SYS_close_range, CTL + 1, CHILDREN - 1, 0);
		sys3(SYS_close_range, NOTICES + 1, ~0u, 0);
		memset(buf, 0, (ul)nbuf);
		init();
	}
	err = pid;
	u32 ids[2] = {q->inner, q->outer};
	if (pid > 0 && !(q->mode & PLAIN)) err = map_ids((u32)pid, q->mode, ids, ids, 1);
	if (err >= 0) err = sys3(SYS_write, go[1], (long)"g", 1);
	u32 o[3] = {err < 0 ? 'E' : 'S', err < 0 ? (u32)-err : (u32)pid, 0};
	int fds[2] = {pidfd, (int)net};
	long sent = tell(CTL, o, sizeof o, fds, err < 0 ? 0 : made && net >= 0 ? 2 : 1);
	if (sent < 0) { // the pidfd could not be sent, so the server could not end the sandbox: kill it and report
		if (pidfd >= 0) sys4(SYS_pidfd_send_signal, pidfd, SIGKILL, 0, 0);
		say('E', (u32)-sent, 0);
	}
	if (made && net >= 0) sys1(SYS_close, net);
	if (pidfd >= 0) sys1(SYS_close, pidfd);
	if (go[0] >= 0) { sys1(SYS_close, go[0]); sys1(SYS_close, go[1]); }
	close_fds();
}

static void spawner(void) {
	for (;;) {
		long n = receive(CTL);
		if (n == -EAGAIN) continue;
		if (n <= 0) sys1(SYS_exit_group, 0); // the server has ended
		if (((u32 *)buf)[0] == 'N') fresh_net();
		else if (((u32 *)buf)[0] == 'M' && n >= (long)(sizeof(struct make) + sizeof(struct script))) spawn();
		else close_fds();
	}
}

// -- init of a container ------------------------------------------------------------------------------------------------------
// contained is PID 1 of a container. It connects to the server's socket, which is mounted beside this program, and gets the packet
// that a spawner gets. The container is the sandbox, so nothing is cloned: only the packet's script runs.
static void contained(void) {
	static const struct { short family; char path[22]; } to = {1, "/.sandboxmcp/control"};
	long s = sys3(SYS_socket, 1, 5 | 02000000 /* SEQPACKET|CLOEXEC */, 0);
	if (s < 0 || sys3(SYS_connect, s, (long)&to, sizeof to) < 0) sys1(SYS_exit_group, 1);
	if (s != CTL && sys3(SYS_dup3, s, CTL, 02000000) < 0) sys1(SYS_exit_group, 1);
	sys3(SYS_close_range, CTL + 1, ~0u, 0);
	struct { ul handler, flags, restorer, mask; } dfl = {0, 0, 0, 0};
	sys4(SYS_rt_sigaction, SIGCHLD, (long)&dfl, 0, 8);
	long n = receive(CTL);
	struct make *q = (struct make *)buf;
	if (n < (long)(sizeof *q + sizeof(struct script)) || q->offset > (ul)n - sizeof(struct script)) sys1(SYS_exit_group, 1);
	run((struct script *)(buf + q->offset));
	report((struct script *)(buf + q->offset));
	sys3(SYS_close_range, CTL + 1, CHILDREN - 1, 0);
	sys3(SYS_close_range, NOTICES + 1, ~0u, 0);
	memset(buf, 0, (ul)nbuf);
	init();
}

#include "launch.c"

// -- builder ------------------------------------------------------------------------------------------------------------------
// The first packet is 'B' with a script, or 'U' for a launcher. Its first descriptors are the sockets of the spawners. The builder keeps only its own socket.
// A program without spawners carries out a script as the server's user.
void begin(void) {
	struct { ul handler, flags, restorer, mask; } dfl = {0, 0, 0, 0}, ignore = {1, 0, 0, 0};
	for (int i = 1; i <= 64; i++) sys4(SYS_rt_sigaction, i, (long)&dfl, 0, 8); // programs must not inherit ignored signals
	ul files[2];                                           // raise RLIMIT_NOFILE, which bounds the user's descriptors in flight
	if (sys4(SYS_prlimit64, 0, 7, 0, (long)files) >= 0) {
		files[0] = files[1];
		sys4(SYS_prlimit64, 0, 7, (long)files, 0);
	}
	sys4(SYS_rt_sigaction, SIGCHLD, (long)&ignore, 0, 8); // inits are reaped by the kernel; the server watches their pidfds
	long n = receive(CTL);
	if (n == -9 /* EBADF */) contained();                  // only a server gives this program a socket
	if (n == (long)sizeof(struct launch) && ((u32 *)buf)[0] == 'U') launch();
	if (n < (long)sizeof(struct script)) sys1(SYS_exit_group, 1);
	int nspawn = (int)buf[3], sock[MAXFD];                 // the kind's fourth byte
	struct script *s = (struct script *)buf;
	for (int i = 0; i < nspawn && i < ngot; i++) sock[i] = got.fd[i];
	run(s);
	while (begun_net && sys4(SYS_wait4, -1, 0, 0, 0) != -10 /* ECHILD */); // until the child of begin_net has ended
	for (int i = 0; i < nspawn; i++) {
		long pid = sys5(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		if (pid == 0) {
			sys3(SYS_dup3, sock[i], CTL, 02000000);
			if (i == 0) take_net();
			sys3(SYS_close_range, CTL + 1, COMMON - 1, 0);
			sys3(SYS_close_range, COMMON + NCOMMON, ~0u, 0);
			if (begun_net && i == 0) fresh_net();          // if the child has failed
			spawner();
		}
		if (i == 0) report(s);
	}
	if (nspawn == 0) report(s);
	sys3(SYS_close_range, CTL + 1, ~0u, 0);
	while (receive(CTL) > 0) close_fds();
	sys1(SYS_exit_group, 0);                              // PID 1 of Z's pid namespace: the kernel ends everything in it
}
