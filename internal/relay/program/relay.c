// The first program of a container whose runtime passes no descriptors to the server: of gVisor, of Kata, and of engines in a virtual
// machine. A static binary of a few pages, without a libc. Its stdin and stdout are the engine's stream to the server.
//
// It makes system calls for the server, starts programs and reports their ends. It has no code for files, networks or walls: package
// relay builds them as lists of system calls. A list may wait until a descriptor is ready, which is enough for streams and sockets.
// At end of file the relay exits, and the kernel ends the rest of the container.
//
// Packets begin with their size and their kind, and are little-endian. doc.go of package relay describes them.
#include "../../jail/init/sys.h"
#include "numbers.h"

typedef unsigned long ul;
typedef unsigned int u32;
typedef unsigned char u8;

void *memset(void *p, int c, ul n) { u8 *q = p; while (n--) *q++ = (u8)c; return p; }
void *memcpy(void *p, const void *s, ul n) { u8 *q = p; const u8 *t = s; while (n--) *q++ = *t++; return p; }

enum { IN = 60, OUT = 61, CHILDREN = 62, REPORT = 200 }; // descriptors: the stream, a signalfd, and that of a fork to this process
enum { EINTR = 4, EAGAIN = 11, ECANCELED = 125, SIGCHLD = 17, SIGKILL = 9, SIGPIPE = 13, POLLIN = 1 };
enum { PACKET = 1 << 17, WAITING = 256, WAITBYTES = 20 << 10, ANSWER = 1 << 16, FILES = 20 };

static u8 in[PACKET] __attribute__((aligned(16)));      // packets that have not been carried out
static ul nin;
static u8 prelude[PACKET] __attribute__((aligned(16))); // the calls that every program makes before it is executed
static struct { long result[64]; u8 bytes[ANSWER]; } answer __attribute__((aligned(16)));
static char *vec[8192];

static void out(const void *p, ul n) {
	const u8 *b = p;
	while (n) {
		long r = sys3(SYS_write, OUT, (long)b, (long)n);
		if (r == -EINTR) continue;
		if (r <= 0) sys1(SYS_exit_group, 1);
		b += r, n -= (ul)r;
	}
}

// A packet is written at once, because a proxy on the way passes on each write by itself.
struct part { const void *p; ul n; };
static void outs(struct part *v, ul n) {
	while (n) {
		if (v->n == 0) { v++, n--; continue; }
		long r = sys3(SYS_writev, OUT, (long)v, (long)n);
		if (r == -EINTR) continue;
		if (r <= 0) sys1(SYS_exit_group, 1);
		for (ul left = (ul)r; left;) {
			ul k = left < v->n ? left : v->n;
			v->p = (const u8 *)v->p + k, v->n -= k, left -= k;
			if (v->n == 0) v++, n--;
		}
	}
}

static void say(u32 kind, u32 a, u32 b, u32 c) { u32 o[5] = {20, kind, a, b, c}; out(o, sizeof o); }

// -- lists of system calls ----------------------------------------------------------------------------------------------------
// A list runs until a call fails that may not fail. Calls that are always made, such as close, are made after such a failure,
// too. An argument is a number, an offset in the packet, an offset in the answer, or the result of an earlier call.
enum { NUMBER, BYTES, ANSWERED, RESULT };
enum { MAY_FAIL = 1, ALWAYS = 2 };
enum { STORE64 = 0xffffffff };                          // no system call: stores the second argument at the address in the first
struct call { u32 nr, flags; u8 tag[8]; ul arg[6]; };
struct list { u32 size, kind, tag; int fd; u32 events, ncalls, answer, from; struct call call[]; };

// run carries out a list, and returns the number of results. A call that was not made has the result -ECANCELED.
static u32 run(struct list *l, long *result, u8 *space) {
	u32 i, failed = 0;
	for (i = 0; i < l->ncalls && i < 64; i++) {
		struct call *c = &l->call[i];
		long a[6];
		result[i] = -ECANCELED;
		if (failed && !(c->flags & ALWAYS)) continue;
		for (int k = 0; k < 6; k++)
			switch (c->tag[k]) {
			case BYTES: a[k] = (long)((u8 *)l + c->arg[k]); break;
			case ANSWERED: a[k] = (long)(space + c->arg[k]); break;
			case RESULT: a[k] = result[c->arg[k] & 63]; break;
			default: a[k] = (long)c->arg[k];
			}
		if (c->nr == STORE64) *(ul *)a[0] = (ul)a[1], result[i] = 0;
		else do result[i] = sys6(c->nr, a[0], a[1], a[2], a[3], a[4], a[5]); while (result[i] == -EINTR);
		if (result[i] < 0 && !(c->flags & MAY_FAIL)) failed = 1;
	}
	return i;
}

// serve carries out a list of the server, and answers with the results and with the bytes that calls have put into the answer: as many
// as the list says, or as many as one call has returned.
static void serve(struct list *l) {
	u32 n = run(l, answer.result, answer.bytes), size = l->answer;
	if (l->from) {
		long r = answer.result[(l->from - 1) & 63];
		size = r < 0 ? 0 : r < (long)size ? (u32)r : size;
	}
	if (size > ANSWER) size = ANSWER;
	struct { u32 size, kind, tag, n; } head = {(u32)(16 + 8 * n + size), 'Y', l->tag, n};
	struct part all[3] = {{&head, sizeof head}, {answer.result, 8 * n}, {answer.bytes, size}};
	outs(all, 3);
}

// -- lists that wait ----------------------------------------------------------------------------------------------------------
static u8 waiting[WAITING][WAITBYTES] __attribute__((aligned(16)));
static u32 nwaiting;                                    // the first ones are in use
static u8 *place[WAITING];

static void refuse(u32 tag, long errno) {
	struct { u32 size, kind, tag, n; long result; } o = {24, 'Y', tag, 1, -errno};
	out(&o, sizeof o);
}

static void postpone(struct list *l) {
	if (nwaiting == WAITING || l->size > WAITBYTES) { refuse(l->tag, EAGAIN); return; }
	memcpy(place[nwaiting++], l, l->size);
}

static void forget(u32 i) {
	u8 *p = place[i];
	place[i] = place[--nwaiting];
	place[nwaiting] = p;
}

static void cancel(u32 tag) {
	for (u32 i = 0; i < nwaiting; i++)
		if (((struct list *)place[i])->tag == tag) {
			refuse(tag, ECANCELED);
			forget(i);
			return;
		}
}

// -- programs -----------------------------------------------------------------------------------------------------------------
struct start { u32 size, kind, tag, argc, envc, nlimits, nfiles, pad; ul limit[8][2]; u8 file[FILES]; char text[]; }; // text: directory, argv, envp
enum { NOTHING, READS, WRITES };                        // kinds of a program's descriptors: the null device, or an end of a pipe

static void closing(int (*p)[2], u32 n, int end) {
	for (u32 i = 0; i < n; i++) if (p[i][end] >= 0) sys1(SYS_close, p[i][end]);
}

// start runs a program. It answers with the program's id and with this process's ends of its streams, or with the error. If any call
// fails, the program is not executed.
static void start(struct start *p) {
	static int fd[FILES][2];                            // of the program, and of this process
	static struct { u32 size, kind, tag, n; long result[1 + FILES]; } o;
	char *t = p->text, *dir = t, *end = (char *)p + p->size;
	long e = 0, pid = -1;
	u32 k = 0, n = p->nfiles < FILES ? p->nfiles : FILES;
	int status[2] = {-1, -1};
	end[-1] = 0;
	while (*t++);
	for (u32 i = 0; i < p->argc && t < end && k < 4000; i++) { vec[k++] = t; while (*t++); }
	vec[k++] = 0;
	char **env = vec + k;
	for (u32 i = 0; i < p->envc && t < end && k < 8000; i++) { vec[k++] = t; while (*t++); }
	vec[k] = 0;
	for (u32 i = 0; i < n; i++) fd[i][0] = fd[i][1] = -1;
	for (u32 i = 0; i < n && e >= 0; i++) {
		int two[2], reads = p->file[i] == READS;
		if (p->file[i] == NOTHING) { e = fd[i][0] = (int)sys4(SYS_openat, -100, (long)"/dev/null", 02000002, 0); continue; }
		if ((e = sys2(SYS_pipe2, (long)two, 02000000)) < 0) break;
		fd[i][0] = two[!reads], fd[i][1] = two[reads];
		e = sys3(SYS_fcntl, fd[i][1], 4 /* F_SETFL */, 04000 /* NONBLOCK */);
	}
	if (e >= 0) e = sys2(SYS_pipe2, (long)status, 02000000);
	if (e >= 0) e = pid = sys5(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		ul none = 0;
		long r = sys4(SYS_rt_sigprocmask, 2, (long)&none, 0, 8);
		if (r >= 0) r = sys3(SYS_dup3, status[1], REPORT, 02000000);
		for (u32 i = 0; i < n && r >= 0; i++) r = fd[i][0] = (int)sys3(SYS_fcntl, fd[i][0], 1030, 64);
		for (u32 i = 0; i < n && r >= 0; i++) r = sys3(SYS_dup3, fd[i][0], i, 0);
		if (r >= 0) r = sys3(SYS_close_range, n, REPORT - 1, 0);  // so the program's directory is no descriptor of this process
		if (r >= 0) r = sys3(SYS_close_range, REPORT + 1, ~0u, 0);
		if (r >= 0) r = sys0(SYS_setsid);
		for (u32 i = 0; i < p->nlimits && i < 8 && r >= 0; i++) {
			ul l[2] = {p->limit[i][1], p->limit[i][1]};
			r = sys4(SYS_prlimit64, 0, (long)p->limit[i][0], (long)l, 0);
		}
		if (r >= 0) r = sys1(SYS_chdir, (long)dir);
		struct list *l = (struct list *)prelude;
		u32 done = run(l, answer.result, answer.bytes);
		if (l->ncalls == 0) r = -38 /* ENOSYS: no program without walls */;
		for (u32 i = 0; i < done && r >= 0; i++) if (!(l->call[i].flags & MAY_FAIL)) r = answer.result[i] < 0 ? answer.result[i] : 0;
		if (r >= 0) r = sys3(SYS_execve, (long)vec[0], (long)vec, (long)env);
		sys3(SYS_write, REPORT, (long)&r, sizeof r);
		sys1(SYS_exit_group, 127);
	}
	closing(fd, n, 0);
	if (status[1] >= 0) sys1(SYS_close, status[1]);
	if (e >= 0) {
		long r, got;
		do got = sys3(SYS_read, status[0], (long)&r, sizeof r); while (got == -EINTR);
		if (got == sizeof r) e = r;
	}
	if (status[0] >= 0) sys1(SYS_close, status[0]);
	if (e < 0) closing(fd, n, 1);
	o.size = 16 + 8 * (1 + n), o.kind = 'Y', o.tag = p->tag, o.n = 1 + n;
	o.result[0] = e < 0 ? e : pid;
	for (u32 i = 0; i < n; i++) o.result[1 + i] = e < 0 ? -1 : fd[i][1];
	out(&o, o.size);
}

// reap reports every child that has ended. It returns whether none is left. A process whose parent has ended becomes a child of this one.
static int reap(void) {
	static ul ru[18];
	for (;;) {
		int status = 0;
		long pid = sys4(SYS_wait4, -1, (long)&status, 1 /* WNOHANG */ | 0x40000000 /* __WALL */, (long)ru);
		if (pid == -EINTR) continue;
		if (pid <= 0) return pid == -10 /* ECHILD */;
		u32 o[6] = {24, 'X', (u32)pid, (u32)status, (u32)(ru[0] * 1000 + ru[1] / 1000 + ru[2] * 1000 + ru[3] / 1000), (u32)ru[4]};
		out(o, sizeof o);
	}
}

// clear ends every process but this one, and answers when none is left.
static void clear(u32 tag) {
	struct { ul s, ns; } soon = {0, 200000};
	for (;;) {
		sys2(SYS_kill, -1, SIGKILL);
		if (reap()) break;
		sys5(SYS_ppoll, 0, 0, (long)&soon, 0, 8);
	}
	refuse(tag, 0);
}

static void carry(u32 *h) {
	struct list *l = (struct list *)h;
	if (h[1] == 'Y' && h[0] >= sizeof *l && h[0] - sizeof *l >= l->ncalls * sizeof l->call[0]) { if (l->fd < 0) serve(l); else postpone(l); }
	else if (h[1] == 'S' && h[0] > sizeof(struct start)) start((struct start *)h);
	else if (h[1] == 'F' && h[0] >= sizeof *l) { memcpy(prelude, h, h[0]); refuse(h[2], 0); }
	else if (h[1] == 'Z') cancel(h[2]);
	else if (h[1] == 'C') clear(h[2]);
	else sys1(SYS_exit_group, 2);
}

// receive reads from the stream and carries out the packets that have come.
static void receive(void) {
	long r = sys3(SYS_read, IN, (long)(in + nin), (long)(PACKET - nin));
	if (r == -EINTR || r == -EAGAIN) return;
	if (r <= 0) sys1(SYS_exit_group, 0);               // the server has ended
	nin += (ul)r;
	ul at = 0;
	static u8 one[PACKET + 16] __attribute__((aligned(16))); // packets follow each other at any address
	while (nin - at >= 12) {
		u32 size;
		memcpy(&size, in + at, 4);
		if (size < 12 || size > PACKET) sys1(SYS_exit_group, 2);
		if (nin - at < size) break;
		memcpy(one, in + at, size);
		at += size;
		carry((u32 *)one);
	}
	memcpy(in, in + at, nin - at);                      // to a lower address
	nin -= at;
}

void begin(void) {
	static struct { int fd; short events, revents; } p[2 + WAITING];
	static u8 info[128];
	ul chld = 1ul << (SIGCHLD - 1), held = chld | 1ul << (SIGPIPE - 1); // a write to a closed pipe only fails
	struct { ul handler, flags, restorer, mask; } dfl = {0, 0, 0, 0};
	for (int i = 1; i <= 64; i++) sys4(SYS_rt_sigaction, i, (long)&dfl, 0, 8);
	sys4(SYS_rt_sigprocmask, 0, (long)&held, 0, 8);
	long null = sys4(SYS_openat, -100, (long)"/dev/null", 02000002, 0), signals = sys4(SYS_signalfd4, -1, (long)&chld, 8, 02004000);
	if (null < 0) sys1(SYS_exit_group, 3);
	if (sys3(SYS_dup3, 0, IN, 02000000) < 0 || sys3(SYS_dup3, 1, OUT, 02000000) < 0) sys1(SYS_exit_group, 3);
	if (signals >= 0) sys3(SYS_dup3, signals, CHILDREN, 02000000); // behind the filter of programs signalfd fails
	for (int i = 0; i < 3; i++) sys3(SYS_dup3, null, i, 0);
	sys3(SYS_close_range, 3, IN - 1, 0);
	sys3(SYS_close_range, CHILDREN + 1, ~0u, 0);
	for (u32 i = 0; i < WAITING; i++) place[i] = waiting[i];
	say('R', 1 /* version */, 0, 0);
	for (;;) {
		p[0].fd = IN, p[0].events = POLLIN, p[1].fd = signals < 0 ? -1 : CHILDREN, p[1].events = POLLIN;
		u32 n = nwaiting;
		for (u32 i = 0; i < n; i++) {
			struct list *l = (struct list *)place[i];
			p[2 + i].fd = l->fd, p[2 + i].events = (short)l->events;
		}
		for (u32 i = 0; i < 2 + n; i++) p[i].revents = 0;
		if (sys5(SYS_ppoll, (long)p, 2 + n, 0, 0, 8) < 0) continue;
		for (u32 i = n; i-- > 0;)                      // backwards, because forget moves the last one
			if (p[2 + i].revents) {
				serve((struct list *)place[i]);
				forget(i);
			}
		// The output of a program is read before its end is reported.
		if (p[1].revents) {
			sys3(SYS_read, CHILDREN, (long)info, sizeof info);
			reap();
		}
		if (p[0].revents) receive();
	}
}
