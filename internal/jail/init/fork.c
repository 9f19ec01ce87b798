// Forks the zygote into sandboxes and builds the walls of forks. snapshot.c includes this file. The code parses only packets of the server,
// and the server sends nothing of a tenant before the walls are built and checked.
//
// A fork's parent has to be the sandbox's init, so a process of that pid namespace makes the fork and exits. It shares the zygote's memory
// while the zygote waits for it. Between two forks the zygote runs no code of the interpreter, which would copy pages.

typedef ul unaligned __attribute__((aligned(1), may_alias));
struct span { ul start, size; };
struct walls { const struct call *calls; ul count, need, ntold, nsent; u8 told[32], sent[16]; }; // told, sent: indexes of results
struct serving {
	ul stack;           // the zygote's stack pointer, for fork_between
	int (*fork)(void);  // of the C library
	long control, home; // descriptors: the socket to the server, the zygote's own pid namespace
	long rseq, rseq_size;
	ul files;           // limit of open files of forks; 0: that of their walls
	struct span *spans; // what a program will write to
	ul nspans;
	const struct walls *walls[32]; // by number; 0: none
	void (*after)(void);           // PyOS_AfterFork_Child
	const char *usual;             // packets of programs for which the zygote is prepared, each after its size; the last size is 0. 0: none
	const char *places;            // strings: '1' and the path of a file, or '0' and the path of none; the last is empty
	struct span *reads;            // what a program will read of mapped files
	ul nreads;
	// of one request, or of one fork
	const struct walls *script;
	ul ahead, ready;
	int nfds, fds[16], self;
	long results[64];
};
enum { SERVING = 0xc000, PACKET = 0x40000, PACKET_SIZE = 0x40000 }; // offsets in the area; fork_between depends on the first
enum { EINTR = 4, EAGAIN = 11, NEWPID = 0x20000000, WALL = 0x40000000, RLIMIT_NOFILE = 7, POPULATE_READ = 22, POPULATE_WRITE = 23 };
#define FORK (1l << 32)
struct iov { void *base; ul len; };
struct msg { void *name; u32 namelen; struct iov *iov; ul iovlen; void *control; ul controllen; int flags; };
struct rights { ul len; int level, type, fd[16]; };

// fork_between makes a process with the zygote's memory and a stack of its own, in which fork() is called. It returns that process's id, or
// a negative errno; and 0 in the fork.
long fork_between(struct serving *s);
long await(char *area);
#if defined(__x86_64__)
__asm__(".text\nfork_between:\n\tpush %rbx\n\tpush %rbp\n"
	"\tmov %rdi,%rbx\n\tmov %rsp,(%rbx)\n"
	"\tmov $0x4111,%edi\n\tlea 0x14000(%rbx),%rsi\n\txor %edx,%edx\n\txor %r10d,%r10d\n\txor %r8d,%r8d\n" // CLONE_VFORK, CLONE_VM, SIGCHLD
	"\tmov $56,%eax\n\tsyscall\n\ttest %rax,%rax\n\tjnz 2f\n"
	"\txor %ebp,%ebp\n\tcall *8(%rbx)\n\ttest %eax,%eax\n\tjz 1f\n"
	"\tmov %eax,%edi\n\tshr $31,%edi\n\tmov $60,%eax\n\tsyscall\n\thlt\n"
	"1:\tmov (%rbx),%rsp\n\txor %eax,%eax\n"
	"2:\tpop %rbp\n\tpop %rbx\n\tret\n");
#else
__asm__(".text\nfork_between:\n\tstp x29,x30,[sp,#-32]!\n\tstr x19,[sp,#16]\n"
	"\tmov x19,x0\n\tmov x9,sp\n\tstr x9,[x19]\n"
	"\tmov x0,#0x4111\n\tadd x1,x19,#0x14,lsl #12\n\tmov x2,#0\n\tmov x3,#0\n\tmov x4,#0\n"
	"\tmov x8,#220\n\tsvc 0\n\tcbnz x0,2f\n"
	"\tmov x29,#0\n\tldr x9,[x19,#8]\n\tblr x9\n\tcbz w0,1f\n"
	"\tlsr w0,w0,#31\n\tmov x8,#93\n\tsvc 0\n\tbrk #0\n"
	"1:\tldr x9,[x19]\n\tmov sp,x9\n\tmov x0,#0\n"
	"2:\tldr x19,[sp,#16]\n\tldp x29,x30,[sp],#32\n\tret\n");
#endif

static _Noreturn void leave(int code) { for (;;) sys1(SYS_exit_group, code); }

// hear reads one packet into the area. It returns its size, 0 at end of file, or a negative errno.
static long hear(char *area, struct serving *s, int from) {
	struct rights got;
	struct iov v = {area + PACKET, PACKET_SIZE};
	struct msg m = {0, 0, &v, 1, &got, sizeof got, 0};
	long n;
	got.len = 0;
	do n = sys3(SYS_recvmsg, from, (long)&m, 0x40000000 /* MSG_CMSG_CLOEXEC */); while (n == -EINTR);
	s->nfds = n > 0 && m.controllen >= 16 && got.len > 16 && got.level == 1 && got.type == 1 ? (int)((got.len - 16) / 4) : 0;
	for (int i = 0; i < s->nfds; i++) s->fds[i] = got.fd[i];
	return n;
}

static long say(int to, const u32 *words, ul n, const int *fds, ul nfds) {
	struct rights r;
	struct iov v = {(void *)words, 4 * n};
	struct msg m = {0, 0, &v, 1, nfds ? &r : 0, nfds ? (16 + 4 * nfds + 7) & ~7ul : 0, 0};
	r.len = 16 + 4 * nfds, r.level = 1, r.type = 1;
	for (ul i = 0; i < nfds; i++) r.fd[i] = fds[i];
	return sys3(SYS_sendmsg, to, (long)&m, 0x4000 /* MSG_NOSIGNAL */);
}

// alone reports whether this process has one thread.
static int alone(void) {
	char entries[512];
	int n = 0, fd = (int)sys4(SYS_openat, -100, (long)"/proc/self/task", 02000000 /* O_CLOEXEC */, 0);
	long size = sys3(SYS_getdents64, fd, (long)entries, sizeof entries);
	for (long at = 0; at < size; at += *(unsigned short *)(entries + at + 16)) n++;
	sys1(SYS_close, fd);
	return n == 3; // with . and ..
}

static void advise(const struct span *spans, ul count, long advice) {
	for (const struct span *p = spans; p < spans + count; p++) sys3(SYS_madvise, (long)p->start, (long)p->size, advice);
}

// populate copies or maps pages now, so that they cause no page faults later.
long populate(const struct span *spans, long count, long advice) {
	advise(spans, (ul)count, advice);
	return 0;
}

// advise_all is advise in one call, which Linux 6.13 has. A span has the form of an iovec.
static void advise_all(int self, const struct span *spans, ul count, long advice) {
	long size = 0;
	for (ul i = 0; i < count; i++) size += (long)spans[i].size;
	if (sys5(SYS_process_madvise, self, (long)spans, (long)count, advice, 0) != size) advise(spans, count, advice);
}

// become builds the walls of a fork. It returns 0. On failure it tells the server and exits.
static long become(struct serving *s) {
	const struct walls *w = s->script;
	ul open = 0; // the calls before the filter is loaded, which refuses process_madvise
	long r = 0;
	while (open < w->count && w->calls[open].nr != SYS_seccomp) open++;
	if (s->rseq_size && *(int *)(thread() + s->rseq + 4) >= 0) // the C library has registered it; the process between has not inherited that
		r = sys4(SYS_rseq, (long)(thread() + s->rseq), s->rseq_size, 0, RSEQ_SIGNATURE);
	if (r >= 0) r = s->self = (int)sys2(SYS_pidfd_open, sys0(SYS_getpid), 0);
	if (r >= 0) r = make_calls(w->calls, (long)open, s->fds, s->results);
	if (r >= 0 && s->ahead) {
		advise_all(s->self, s->spans, s->nspans, POPULATE_WRITE);
		advise_all(s->self, s->reads, s->nreads, POPULATE_READ);
	}
	if (r >= 0) r = make_calls(w->calls + open, (long)(w->count - open), s->fds, s->results + r);
	if (r < 0) {
		u32 failed[2] = {'E', (u32)-r};
		say(s->fds[1], failed, 2, 0, 0);
		leave(1);
	}
	s->ready = 0;
	return 0;
}

// fork_into returns 0 in the fork. In the zygote it returns a process id, or a negative errno.
static long fork_into(struct serving *s) {
	int status = 0;
	long r = sys2(SYS_setns, s->fds[0], NEWPID);
	if (r < 0) return r;
	long pid = fork_between(s);
	if (!pid) return become(s);
	if (sys2(SYS_setns, s->home, NEWPID) < 0) leave(1);
	if (pid < 0) return pid;
	do r = sys4(SYS_wait4, pid, (long)&status, WALL, 0); while (r == -EINTR);
	return r < 0 ? r : status ? -EAGAIN : pid;
}

// prepared returns which of the usual packets this is, or -1.
static long prepared(const struct serving *s, const char *p, ul n) {
	const char *u = s->usual;
	for (long which = 0; u; which++) {
		ul size = *(const unaligned *)u, i = 0;
		if (!size) return -1;
		for (u += 8; size == n && i < n && p[i] == u[i];) i++;
		if (i < n) {
			u += size;
			continue;
		}
		for (const char *at = s->places; *at; at++) {
			if ((*at == '1') != (sys3(SYS_faccessat, -100, (long)(at + 1), 0) >= 0)) return -1;
			while (*at) at++;
		}
		const char *directory = p;
		for (int nul = 0; nul < 3; nul += !*directory++);
		return sys1(SYS_chdir, (long)directory) < 0 ? -1 : which;
	}
	return -1;
}

// serve answers requests to fork. In a fork that has its walls it returns what await returns, and FORK if that is a size. In the zygote
// it returns the size of a packet that is another request.
long serve(char *area) {
	struct serving *s = (struct serving *)(area + SERVING);
	const u32 *p = (const u32 *)(area + PACKET);
	for (;;) {
		long n = hear(area, s, (int)s->control), r = -EINVAL;
		if (n <= 0) leave(0);
		if (n == 12 && (p[0] & 0xff) == 'F' && p[1] < 32 && (s->script = s->walls[p[1]]) && (ul)s->nfds >= s->script->need && s->nfds >= 3) {
			s->ahead = p[2];
			r = alone() ? fork_into(s) : -EAGAIN;
			if (!r) {
				s->after();
				n = await(area);
				return n < 0 ? n : n | FORK;
			}
		}
		for (int i = 0; i < s->nfds; i++) sys1(SYS_close, s->fds[i]);
		if ((p[0] & 0xff) != 'F') return n;
		u32 said[2] = {r < 0 ? 'E' : 'P', (u32)-r};
		say((int)s->control, said, r < 0 ? 2 : 1, 0, 0);
	}
}

// await tells the server that the walls are built and reads the fork's next packet. If that is a program, its descriptors become 0, 1, 2 …
// and all others are closed. It returns the size of the packet.
long await(char *area) {
	struct serving *s = (struct serving *)(area + SERVING);
	const struct walls *w = s->script;
	const char *p = area + PACKET;
	if (!s->ready && w) { // a fork that only rehearses has no walls
		u32 words[34] = {'R', (u32)sys0(SYS_getpid)};
		int fds[17] = {s->self};
		for (ul i = 0; i < w->ntold; i++) words[2 + i] = (u32)s->results[w->told[i]];
		for (ul i = 0; i < w->nsent; i++) fds[1 + i] = (int)s->results[w->sent[i]];
		if (say(s->fds[1], words, 2 + w->ntold, fds, 1 + w->nsent) < 0) leave(1);
		// Only now: the kernel refuses to send descriptors while the user has more of them in flight than this limit.
		ul limit[2] = {s->files, s->files};
		if (s->files && sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, (long)limit, 0) < 0) leave(1);
		if (s->fds[1] != 3 && sys3(SYS_dup3, s->fds[1], 3, 0) < 0) leave(1);
		s->ready = 1;
	}
	sys3(SYS_close_range, 4, (long)~0u, 0);
	long n = hear(area, s, 3);
	if (n <= 0) leave(0);
	if (p[0] != 'S' || p[1]) return n;
	for (int i = 0; i < s->nfds; i++)
		if (s->fds[i] != i && sys3(SYS_dup3, s->fds[i], i, 0) < 0) leave(1);
	sys3(SYS_close_range, s->nfds, (long)~0u, 0);
	long which = prepared(s, p, (ul)n);
	return which < 0 ? n : -1 - which;
}

// report writes spans of pages to a descriptor: those that this process has written to, which are no longer shared with its parent, and, with
// a size that is odd, those of files that it has only read.
long report(char *area, int to, ul page) {
	struct text t = {area + READ, 0, 0, 0};
	struct vma v;
	ul *flags = (ul *)(area + PAGES), n = 0, most = PACKET_SIZE / sizeof(struct span);
	struct span *found = (struct span *)(area + PACKET);
	int pagemap = (int)sys4(SYS_openat, -100, (long)"/proc/self/pagemap", 02000000, 0);
	char *l;
	t.fd = (int)sys4(SYS_openat, -100, (long)"/proc/self/maps", 02000000, 0);
	while ((l = line(&t))) {
		if (!parse(l, &v) || v.shared || (v.prot != 3 && (v.prot & 2 || !v.inode))) continue;
		for (ul at = v.start, past = 0, around = 0; at < v.end;) {
			ul want = (v.end - at) / page * 8;
			if (want > PAGES_SIZE) want = PAGES_SIZE;
			if (sys4(SYS_pread64, pagemap, (long)flags, (long)want, (long)(at / page * 8)) != (long)want) return -EIO;
			for (ul i = 0; i < want / 8; i++, at += page) {
				ul there = flags[i] >> 63, reads = flags[i] >> 61 & 1, alone = flags[i] >> 56 & 1; // reads: of a file; alone: no other process maps it
				if (!there || !(reads || (alone && v.prot == 3)) || (at >= (ul)area && at < (ul)area + AREA)) continue;
				if (reads && around == at >> 16) continue; // the kernel maps the pages around one, 64 KiB
				if (reads) around = at >> 16;
				if (past == at && (found[n - 1].size & 1) == reads) found[n - 1].size += page;
				else if (n < most) found[n++] = (struct span){at, page | reads};
				else return -E2BIG;
				past = at + page;
			}
		}
	}
	for (ul at = 0, size = n * sizeof *found; at < size;) {
		long r = sys3(SYS_write, to, (long)((char *)found + at), (long)(size - at));
		if (r <= 0) return -EIO;
		at += (ul)r;
	}
	return (long)n;
}
