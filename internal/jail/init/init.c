// The only program of the product that runs inside a sandbox's namespaces without being asked for. One static binary of a few pages,
// no libc, single-threaded; a process of it is, one after the other:
//
//   builder  child of the server, owner of user namespace Z and PID 1 of a pid namespace around every sandbox. Carries out a script
//            that makes the template root, then forks the spawners and waits: when the server goes, it ends and the kernel ends all.
//   spawner  clones sandboxes on request and writes their id maps. A fork of a few pages is why it is not the server that does it.
//            For a sandbox's network it forks one that enters the sandbox's network namespace, carries out a script there, and ends.
//   init     PID 1 of a sandbox. Carries out a script that puts every wall around itself, then starts programs on request; they
//            inherit the walls. End of file on its control socket ends it, and the kernel ends whatever else is in the sandbox.
//
// What a script holds is decided, named and tested in Go (script_linux.go); this file only carries it out. All packets are of the
// server's making, and little-endian. The wire is described in doc.go.
#include "sys.h"

typedef unsigned long ul;
typedef unsigned int u32;
typedef unsigned char u8;

void *memset(void *p, int c, ul n) { u8 *q = p; while (n--) *q++ = (u8)c; return p; }
void *memcpy(void *p, const void *s, ul n) { u8 *q = p; const u8 *t = s; while (n--) *q++ = *t++; return p; }

enum { CTL = 3, MAXFD = 16, HIGH = 64, WATCH = HIGH - 1 }; // control socket; descriptors in one packet; where moved ones go; see noticed
enum { AT_FDCWD = -100, EINTR = 4, EAGAIN = 11, SIGCHLD = 17, SIGKILL = 9 };

struct iov { void *base; ul len; };
struct msg { void *name; u32 namelen; struct iov *iov; ul iovlen; void *control; ul controllen; int flags; };
struct rights { ul len; int level, type, fd[MAXFD]; };  // SCM_RIGHTS; 16 bytes of head

static u8 buf[1 << 18] __attribute__((aligned(16)));    // one packet, 256 KiB
static struct rights got;                               // the descriptors that came with it
static int ngot;
static long nbuf;                                       // bytes in buf
static char *vec[8192];                                 // argv and envp of a program to start
static long reg[64];                                    // results of a script's calls
static int subreaper;                                   // no pid namespace: this process has to end the others itself

// receive reads one packet into buf. 0: the peer is gone; negative: nothing there.
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

// tell sends one packet with up to nfd descriptors. Negative: it was not sent; the kernel bounds the descriptors on their way by user.
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

// -- scripts ------------------------------------------------------------------------------------------------------------------
// A script is a list of system calls with their arguments. An argument is a number, an offset of bytes in the packet, a descriptor
// that came with the packet, or the result of an earlier call.
enum { NUMBER, BYTES, DESCRIPTOR, RESULT };
enum { MAY_FAIL = 1 };
enum { STORE64 = 0xffffffff, STORE32 = 0xfffffffe, LOAD32 = 0xfffffffd }; // no system calls: put the second argument where the first
                                                        // one points; have what the first one points to as result
struct call { u32 nr, flags; u8 tag[6], keep, pad; ul arg[6]; };
struct script { u32 kind, ncalls, nresults, nfds; u8 result[32], fd[16]; struct call call[]; };

// run carries a script out and answers with the results and descriptors that it asks for. The number of a failed call: the end.
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
		else r = sys6(c->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
		if (c->keep) reg[c->keep] = r;
		if (r < 0 && !(c->flags & MAY_FAIL)) {
			say('E', i, (u32)-r);
			sys1(SYS_exit_group, 1);
		}
	}
	struct { u32 kind, n; int v[32]; } out = {'R', s->nresults, {0}};
	int fds[16];
	for (u32 i = 0; i < s->nresults; i++) out.v[i] = (int)reg[s->result[i]];
	for (u32 i = 0; i < s->nfds; i++) fds[i] = (int)reg[s->fd[i]];
	if (tell(CTL, &out, sizeof out, fds, (int)s->nfds) < 0) sys1(SYS_exit_group, 1);
	for (u32 i = 0; i < s->nfds; i++) sys1(SYS_close, fds[i]);
}

// -- init ---------------------------------------------------------------------------------------------------------------------
static void end_all(void) {
	if (subreaper) // nobody else ends them: signals reach this Landlock domain and nothing outside it
		do sys2(SYS_kill, -1, SIGKILL); while (sys4(SYS_wait4, -1, 0, 0, 0) > 0);
	sys1(SYS_exit_group, 0);
}

struct start { u32 kind, tag, argc, envc, nlimits, pad; ul limit[8][2]; char text[]; }; // text: directory, argv, envp
struct status { u32 kind, pid; int status; u32 maxrss; ul user, system; u32 alone, pad; }; // KiB; microseconds; no other child was left

// domain puts a program without a pid namespace into a Landlock domain of its own: its signals reach what it starts, but not this
// process, which has to end it all. A layer that does not speak of moving files between directories would forbid it.
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

// start runs a program. The descriptors of the packet become its 0, 1, 2, 3 …; nothing else stays open. A call that fails fails the
// start: a program never runs with less than was asked for.
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
	long pid = sys5(SYS_clone, SIGCHLD, 0, 0, 0, 0);
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
	if (r >= 0 && p->nlimits > 8) r = -22 /* EINVAL */;
	for (u32 i = 0; i < p->nlimits && r >= 0; i++) {
		ul l[2] = {p->limit[i][1], p->limit[i][1]};
		r = sys4(SYS_prlimit64, 0, (long)p->limit[i][0], (long)l, 0);
	}
	if (r >= 0 && subreaper) r = domain();
	if (r >= 0) r = sys1(SYS_chdir, (long)dir);
	if (r >= 0) r = sys3(SYS_execve, (long)vec[0], (long)vec, (long)env);
	u32 o[3] = {'F', p->tag, (u32)-r};
	tell(ctl < 0 ? CTL : (int)ctl, o, sizeof o, 0, 0);    // without a copy of the socket nothing has taken its number yet
	sys1(SYS_exit_group, 127);
}

// reap tells of every child that has ended; with flags 0 it waits until none is left. A process whose parent ends becomes a child of
// this one before the parent can be waited for, so that without a child nothing else lives here.
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

// clear ends every process of the sandbox but this one, and says so when none is left.
static void clear(u32 tag) {
	sys2(SYS_kill, -1, SIGKILL);
	reap(0);
	say('A', tag, 0);
}

// noticed lets a program make a socket of the network, and has told the server before the first one is made. The script may have put
// the listener of a seccomp filter at WATCH that stops every such call until it is answered here. Nothing else than such a socket
// can change a network namespace from a sandbox.
static void noticed(void) {
	static int told;
	struct { ul id; u32 pid, flags; u8 data[64]; } call;
	struct { ul id; long value; int error; u32 flags; } answer = {0, 0, 0, 1 /* CONTINUE */};
	memset(&call, 0, sizeof call);
	if (sys3(SYS_ioctl, WATCH, 0xc0502100 /* NOTIF_RECV */, (long)&call) < 0) return; // it has ended meanwhile
	if (!told) say('N', 0, 0);
	told = 1;
	answer.id = call.id;
	sys3(SYS_ioctl, WATCH, 0xc0182101 /* NOTIF_SEND */, (long)&answer);
}

static void init(void) {
	ul chld = 1ul << (SIGCHLD - 1);
	u8 info[128];
	// ending all by kill(-1) is allowed only where it cannot reach the parent, which has the same user and stands outside the domain
	if (subreaper && sys2(SYS_kill, sys0(SYS_getppid), 0) != -1 /* EPERM */) sys1(SYS_exit_group, 1);
	sys4(SYS_rt_sigprocmask, 0, (long)&chld, 0, 8);
	int sfd = (int)sys4(SYS_signalfd4, -1, (long)&chld, 8, 02004000 /* CLOEXEC, NONBLOCK */);
	reap(1 /* WNOHANG */); // a fork may have been put here, and have ended, since the script told that the walls stand
	struct { int fd; short events, revents; } p[3] = {{CTL, 1, 0}, {sfd, 1, 0}, {WATCH, 1, 0}};
	if (sys3(SYS_fcntl, WATCH, 1 /* F_GETFD */, 0) < 0) p[2].fd = -1;
	for (;;) {
		sys5(SYS_ppoll, (long)p, 3, 0, 0, 8);
		if (p[2].revents) noticed();
		if (p[1].revents) {
			sys3(SYS_read, sfd, (long)info, sizeof info);
			reap(1 /* WNOHANG */);
		}
		if (p[0].revents) {
			long n = receive(CTL);
			u32 *h = (u32 *)buf;
			if (n == -EAGAIN) continue;
			if (n <= 0) end_all();
			if (h[0] == 'S' && n > (long)sizeof(struct start)) start(n);
			else if (h[0] == 'K' && n >= 12) { sys2(SYS_kill, (int)h[1], (int)h[2]); close_fds(); }
			else if (h[0] == 'C' && n >= 8) { clear(h[1]); close_fds(); }
			else if (h[0] == 'Q') end_all();
			else close_fds();
		}
	}
}

// -- spawner ------------------------------------------------------------------------------------------------------------------
static char *number(char *p, u32 n) {
	char t[12];
	int i = 0;
	do t[i++] = (char)('0' + n % 10); while (n /= 10);
	while (i) *p++ = t[--i];
	return p;
}

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

// make: what kind of sandbox. mode bit 0: the maps have room for groups (root); bit 1: no namespaces (tier L1); bit 5: no sandbox but
// a process that ends with its script. Descriptors: control socket of the sandbox, [network namespace], then what the script names.
enum { GROUPS = 1, PLAIN = 2, HAVE_NET = 4, WANT_NET = 8, INTO_CGROUP = 16, ONCE = 32 };
struct make { u32 kind, mode; ul flags; u32 outer, inner, offset, pad; };

// small is what a new network namespace is told. Buffers of TCP come from a pool of the whole host, and connections that wait to be
// accepted, or for their last packets, are not in the memory of who makes them. Timestamps would come back with a copy of each packet,
// in a queue that nothing counts; kernels before 6.13 have that switch for the whole host only.
#define PROC_NET "/proc/sys/net/"
static const struct { const char *file, *value; ul n; int may_fail; } small[] = {
	{PROC_NET "ipv4/tcp_rmem", "4096 16384 262144", 17, 0},
	{PROC_NET "ipv4/tcp_wmem", "4096 16384 262144", 17, 0},
	{PROC_NET "core/somaxconn", "128", 3, 0},
	{PROC_NET "ipv4/tcp_max_tw_buckets", "1024", 4, 0},
	{PROC_NET "core/tstamp_allow_data", "0", 1, 1},
};

// fresh tells that the spawner's network namespace has not been given to a sandbox yet: it was made ahead, while the server was busy
// with something else.
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

static long clone_sandbox(struct make *q, int cgroup, int *pidfd) {
	if (cgroup < 0) return sys5(SYS_clone, (long)(q->flags | 0x1000 /* PIDFD */ | SIGCHLD), 0, (long)pidfd, 0, 0);
	ul a[11] = {q->flags | 0x1000 | 0x200000000ul /* INTO_CGROUP */, (ul)pidfd, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, (ul)cgroup};
	return sys2(SYS_clone3, (long)a, sizeof a);
}

// spawn makes one sandbox: in the parent it answers 'S' with a pidfd; in the child it does not return.
static void spawn(void) {
	struct make *q = (struct make *)buf;
	int k = 1, go[2] = {-1, -1}, pidfd = -1, cgroup = -1;
	long net = -1, err = 0, pid;
	// A network namespace belongs to Z: it is entered before the clone, and out of reach after it.
	if (q->mode & HAVE_NET) {
		net = got.fd[k++];
		err = sys2(SYS_setns, net, 0x40000000);
		fresh = 0;
	} else if (!(q->mode & PLAIN)) {
		err = fresh_net();
		fresh = 0; // from here on it is this sandbox's alone
		if (err >= 0 && q->mode & WANT_NET) net = sys4(SYS_openat, AT_FDCWD, (long)"/proc/self/ns/net", 02000000, 0);
	}
	if (q->mode & INTO_CGROUP) cgroup = got.fd[k++];
	if (err >= 0) err = sys2(SYS_pipe2, (long)go, 02000000);
	pid = err < 0 ? err : clone_sandbox(q, cgroup, &pidfd);
	if (pid == 0) {
		char c;
		sys1(SYS_close, go[1]);
		if (sys3(SYS_read, go[0], (long)&c, 1) != 1) sys1(SYS_exit_group, 1); // until the maps are written
		for (int i = 0; i < ngot; i++) got.fd[i] = (int)sys3(SYS_fcntl, got.fd[i], 1030, HIGH);
		sys3(SYS_dup3, got.fd[0], CTL, 02000000);
		sys3(SYS_close_range, CTL + 1, HIGH - 1, 0);
		sys3(SYS_close_range, HIGH + MAXFD, ~0u, 0);
		for (int i = k; i < ngot; i++) got.fd[i - k] = got.fd[i];
		subreaper = !!(q->mode & PLAIN);
		struct { ul handler, flags, restorer, mask; } dfl = {0, 0, 0, 0};
		sys4(SYS_rt_sigaction, SIGCHLD, (long)&dfl, 0, 8); // ignored by the spawner, and that is inherited
		struct script *s = (struct script *)(buf + q->offset);
		run(s);
		if (q->mode & ONCE) sys1(SYS_exit_group, 0);
		sys3(SYS_close_range, CTL + 1, WATCH - 1, 0);
		sys3(SYS_close_range, WATCH + 1, ~0u, 0);
		memset(buf, 0, (ul)nbuf);
		init();
	}
	err = pid;
	if (pid > 0 && !(q->mode & PLAIN)) {
		char b[40], *e = number(b, q->inner);
		*e++ = ' ', e = number(e, q->outer), *e++ = ' ', *e++ = '1';
		if (!(q->mode & GROUPS)) err = put((u32)pid, "/setgroups", "deny", 4);
		if (err >= 0) err = put((u32)pid, "/uid_map", b, (ul)(e - b));
		if (err >= 0) err = put((u32)pid, "/gid_map", b, (ul)(e - b));
	}
	if (err >= 0) err = sys3(SYS_write, go[1], (long)"g", 1);
	u32 o[3] = {err < 0 ? 'E' : 'S', err < 0 ? (u32)-err : (u32)pid, 0};
	int fds[2] = {pidfd, (int)net};
	long sent = tell(CTL, o, sizeof o, fds, err < 0 ? 0 : net >= 0 && !(q->mode & HAVE_NET) ? 2 : 1);
	if (sent < 0) { // nobody can hold it then: it ends, and the server is told
		if (pidfd >= 0) sys4(SYS_pidfd_send_signal, pidfd, SIGKILL, 0, 0);
		say('E', (u32)-sent, 0);
	}
	if (net >= 0 && !(q->mode & HAVE_NET)) sys1(SYS_close, net);
	if (pidfd >= 0) sys1(SYS_close, pidfd);
	if (go[0] >= 0) { sys1(SYS_close, go[0]); sys1(SYS_close, go[1]); }
	close_fds();
}

// unused answers whether no socket lives in a network namespace, such as one on its way between two sockets of the dead.
static void unused(void) {
	static const char none[] = "sockets: used 0\n";
	char text[sizeof none] = "";
	int same = ngot == 1 && sys2(SYS_setns, got.fd[0], 0x40000000) >= 0;
	fresh = 0;
	long fd = sys4(SYS_openat, AT_FDCWD, (long)"/proc/self/net/sockstat", 02000000, 0);
	same = same && sys3(SYS_read, fd, (long)text, sizeof none - 1) == sizeof none - 1;
	for (ul i = 0; i < sizeof none; i++) same = same && text[i] == none[i];
	sys1(SYS_close, fd);
	say('C', (u32)same, 0);
	close_fds();
}

static void spawner(void) {
	for (;;) {
		long n = receive(CTL);
		if (n == -EAGAIN) continue;
		if (n <= 0) sys1(SYS_exit_group, 0); // the server is gone
		if (((u32 *)buf)[0] == 'N') fresh_net();
		else if (((u32 *)buf)[0] == 'C') unused();
		else if (((u32 *)buf)[0] == 'M' && n >= (long)(sizeof(struct make) + sizeof(struct script))) spawn();
		else close_fds();
	}
}

// -- builder ------------------------------------------------------------------------------------------------------------------
// First packet: 'B' with a script, and the sockets of the spawners as its first descriptors. The builder keeps its own socket only.
void begin(void) {
	struct { ul handler, flags, restorer, mask; } dfl = {0, 0, 0, 0}, ignore = {1, 0, 0, 0};
	for (int i = 1; i <= 64; i++) sys4(SYS_rt_sigaction, i, (long)&dfl, 0, 8); // what the server's starter ignored is no concern of programs
	ul files[2];                                           // as many descriptors as may be: those on their way are counted by user
	if (sys4(SYS_prlimit64, 0, 7, 0, (long)files) >= 0) {
		files[0] = files[1];
		sys4(SYS_prlimit64, 0, 7, (long)files, 0);
	}
	sys4(SYS_rt_sigaction, SIGCHLD, (long)&ignore, 0, 8); // inits are reaped by the kernel; the server watches their pidfds
	if (receive(CTL) < (long)sizeof(struct script)) sys1(SYS_exit_group, 1);
	int nspawn = (int)buf[3], sock[MAXFD];                // the kind's fourth byte
	struct script *s = (struct script *)buf;
	for (int i = 0; i < nspawn && i < ngot; i++) sock[i] = got.fd[i];
	run(s);
	for (int i = 0; i < nspawn; i++) {
		long pid = sys5(SYS_clone, SIGCHLD, 0, 0, 0, 0);
		if (pid == 0) {
			sys3(SYS_dup3, sock[i], CTL, 02000000);
			sys3(SYS_close_range, CTL + 1, ~0u, 0);
			spawner();
		}
	}
	sys3(SYS_close_range, CTL + 1, ~0u, 0);
	while (receive(CTL) > 0) close_fds();
	sys1(SYS_exit_group, 0);                              // PID 1 of Z's pid namespace: the kernel ends everything in it
}
