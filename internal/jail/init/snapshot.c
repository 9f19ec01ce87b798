// Saves the memory of a process to a file, the image, and loads an image into another fork of the same zygote. snapshot_linux.go uses it.
// fork.c, which this file includes, makes the forks.
//
// The code is position-independent and has no data of its own. The zygote maps it into an area of AREA bytes, whose rest is its working
// memory, before the first fork. The code runs in forks, behind the walls of their sandboxes and without capabilities. Untrusted code
// may have written the image, so the process that loads it becomes untrusted.
//
// Both processes are forks of the same zygote. Program, vdso and stack are mapped at the same addresses, and the thread control block,
// the robust list and the rseq area are registered at the same addresses. The image holds the rest: registers, signal handlers with
// mask and stack, the end of the heap, and a list of operations that replace the address space. It starts with struct image, the
// operations and their file names. The contents of memory follow from image.data on.
#define WITHOUT_START
#include "sys.h"
#include "snapshot.h"

typedef unsigned long ul;
typedef unsigned int u32;
typedef unsigned char u8;

enum { // offsets in the area
	HEAD = 0x4000,         // struct head; struct serving of fork.c follows
	STACK_TOP = 0x20000,   // end of the stack of load and of fork_between
	READ = 0x20000,        // a buffer for text and one for pages
	READ_SIZE = 0x10000,
	PAGES = 0x30000,
	PAGES_SIZE = 0x10000,  // the packet of fork.c follows
	IMAGE = 0x100000,      // the head of an image
	IMAGE_SIZE = 0x100000,
	AREA = 0x200000,
};

enum { MAP_FILE_AT = 1, MAP_DATA, MAP_ZERO, UNMAP, COPY, WIPE, LARGER };
enum { PRIVATE = 2, SHARED = 1, DROPPABLE = 8, FIXED = 0x10, ANONYMOUS = 0x20, NORESERVE = 0x4000 };
enum { MOST_BASE = 400, RUN_GAP = 32, LARGE_PAGE = 2 << 20, EIO = 5, E2BIG = 7, ENOMEM = 12, EINVAL = 22, ENOTSUP = 95, ESTALE = 116 };

struct op { u32 kind, prot, flags, name; ul at, size, offset, inode, seconds, nanoseconds; };
struct vma { ul start, end, offset, inode; u32 prot, shared; ul sum; };
struct call { u32 nr, flags; u8 tag[6], keep, unused; ul arg[6]; }; // as in init.c, with addresses for bytes
struct head { ul registers[32]; ul count; struct vma base[MOST_BASE]; };
struct image { ul magic, size, data, nops, end_of_heap, registers[32], blocked, stack[3], action[65][4]; struct op op[]; };
#define MAGIC 0x31746f6873706e73ul

void *memcpy(void *to, const void *from, ul n) {
	u8 *t = to;
	const u8 *f = from;
	while (n--) *t++ = *f++;
	return to;
}

void *memset(void *to, int c, ul n) {
	u8 *t = to;
	while (n--) *t++ = (u8)c;
	return to;
}

// make_calls(calls, count, passed, results) builds the walls of a fork; see below.
// save(area, file, page size) returns 0 when the image is written, or a negative errno. It returns again in each process that has loaded
// the image: 1 + ahead.
// load(area, image, rseq, rseq size, ahead) does not return.
long save_all(char *area, int fd, ul page);
_Noreturn void load_all(char *area, int fd, long rseq, ul rseq_size, int ahead);
long remember_all(char *area);
long make_calls(const struct call *calls, long count, const int *passed, long *results);
// serve, await, populate and report are in fork.c.
_Noreturn void resume(ul *registers, long result);
#if defined(__x86_64__)
__asm__(".section .text.entry,\"ax\"\n"
	"\tjmp remember_all\n\t.balign 16\n"
	"\tjmp save\n\t.balign 16\n"
	"\tjmp load\n\t.balign 16\n"
	"\tjmp make_calls\n\t.balign 16\n"
	"\tjmp serve\n\t.balign 16\n"
	"\tjmp await\n\t.balign 16\n"
	"\tjmp populate\n\t.balign 16\n"
	"\tjmp report\n\t.balign 16\n"
	"save:\tlea 0x4000(%rdi),%rax\n"
	"\tmov %rbx,(%rax)\n\tmov %rbp,8(%rax)\n\tmov %r12,16(%rax)\n\tmov %r13,24(%rax)\n\tmov %r14,32(%rax)\n\tmov %r15,40(%rax)\n"
	"\tmov (%rsp),%rcx\n\tmov %rcx,48(%rax)\n\tlea 8(%rsp),%rcx\n\tmov %rcx,56(%rax)\n\tstmxcsr 64(%rax)\n\tfnstcw 68(%rax)\n"
	"\tjmp save_all\n"
	"load:\tlea 0x20000(%rdi),%rsp\n\txor %ebp,%ebp\n\tcall load_all\n\thlt\n"
	"resume:\tldmxcsr 64(%rdi)\n\tfldcw 68(%rdi)\n"
	"\tmov (%rdi),%rbx\n\tmov 8(%rdi),%rbp\n\tmov 16(%rdi),%r12\n\tmov 24(%rdi),%r13\n\tmov 32(%rdi),%r14\n\tmov 40(%rdi),%r15\n"
	"\tmov 56(%rdi),%rsp\n\tmov %rsi,%rax\n\tjmp *48(%rdi)\n\t.previous\n");
#define STACK_POINTER 7
static inline char *thread(void) {
	char *p;
	__asm__("mov %%fs:0,%0" : "=r"(p));
	return p;
}
#else
__asm__(".section .text.entry,\"ax\"\n"
	"\tb remember_all\n\t.balign 16\n"
	"\tb save\n\t.balign 16\n"
	"\tb load\n\t.balign 16\n"
	"\tb make_calls\n\t.balign 16\n"
	"\tb serve\n\t.balign 16\n"
	"\tb await\n\t.balign 16\n"
	"\tb populate\n\t.balign 16\n"
	"\tb report\n\t.balign 16\n"
	"save:\tadd x9,x0,#4,lsl #12\n"
	"\tstp x19,x20,[x9]\n\tstp x21,x22,[x9,#16]\n\tstp x23,x24,[x9,#32]\n\tstp x25,x26,[x9,#48]\n\tstp x27,x28,[x9,#64]\n"
	"\tstp x29,x30,[x9,#80]\n\tmov x10,sp\n\tstr x10,[x9,#96]\n\tmrs x10,fpcr\n\tstr x10,[x9,#104]\n"
	"\tstp d8,d9,[x9,#112]\n\tstp d10,d11,[x9,#128]\n\tstp d12,d13,[x9,#144]\n\tstp d14,d15,[x9,#160]\n"
	"\tb save_all\n"
	"load:\tadd x9,x0,#32,lsl #12\n\tmov sp,x9\n\tmov x29,#0\n\tmov x30,#0\n\tbl load_all\n\tbrk #0\n"
	"resume:\tldp x19,x20,[x0]\n\tldp x21,x22,[x0,#16]\n\tldp x23,x24,[x0,#32]\n\tldp x25,x26,[x0,#48]\n\tldp x27,x28,[x0,#64]\n"
	"\tldp x29,x30,[x0,#80]\n\tldr x10,[x0,#96]\n\tmov sp,x10\n\tldr x10,[x0,#104]\n\tmsr fpcr,x10\n"
	"\tldp d8,d9,[x0,#112]\n\tldp d10,d11,[x0,#128]\n\tldp d12,d13,[x0,#144]\n\tldp d14,d15,[x0,#160]\n"
	"\tmov x0,x1\n\tret\n\t.previous\n");
#define STACK_POINTER 12
static inline char *thread(void) {
	char *p;
	__asm__("mrs %0,tpidr_el0" : "=r"(p));
	return p;
}
#endif

// make_calls makes a list of system calls. A tagged argument is the index of a passed descriptor. It returns the number of kept results.
// If a call without MAY_FAIL fails, it returns the negative errno, and the only result is the number of that system call.
long make_calls(const struct call *calls, long count, const int *passed, long *results) {
	long kept = 0;
	for (const struct call *c = calls; c < calls + count; c++) {
		long a[6];
		for (int i = 0; i < 6; i++) a[i] = c->tag[i] ? passed[c->arg[i]] : (long)c->arg[i];
		long r = sys6((long)c->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
		if (r < 0 && !(c->flags & 1)) {
			results[0] = (long)c->nr;
			return r;
		}
		if (c->keep) results[kept++] = r;
	}
	return kept;
}

// -- /proc/self/smaps ------------------------------------------------------------------------------------------------------------
struct text { char *buffer; int fd, have, at; };

// line returns the next line without its newline, or 0 at end of file or if a line does not fit into the buffer.
static char *line(struct text *t) {
	for (int scanned = 0;;) {
		for (int i = t->at + scanned; i < t->have; i++)
			if (t->buffer[i] == '\n') {
				char *l = t->buffer + t->at;
				t->buffer[i] = 0;
				t->at = i + 1;
				return l;
			}
		int rest = t->have - t->at;
		for (int i = 0; i < rest; i++) t->buffer[i] = t->buffer[t->at + i];
		t->at = 0, t->have = rest, scanned = rest;
		long n = sys3(SYS_read, t->fd, (long)(t->buffer + rest), READ_SIZE - rest);
		if (n <= 0) return 0;
		t->have += (int)n;
	}
}

static char *hex(char *s, ul *v) {
	for (*v = 0;; s++)
		if (*s >= '0' && *s <= '9') *v = *v << 4 | (ul)(*s - '0');
		else if (*s >= 'a' && *s <= 'f') *v = *v << 4 | (ul)(*s - 'a' + 10);
		else return s;
}

static int starts(const char *s, const char *with) {
	while (*with) if (*s++ != *with++) return 0;
	return 1;
}

static int same(const char *a, const char *b) {
	while (*a && *a == *b) a++, b++;
	return *a == *b;
}

static int deleted(const char *s) {
	ul n = 0;
	while (s[n]) n++;
	return n > 10 && same(s + n - 10, " (deleted)");
}

// parse reads "start-end rwxp offset major:minor inode   name" and returns the name, or 0 if the line has another form.
static char *parse(char *l, struct vma *v) {
	if (!(*l >= '0' && *l <= '9') && !(*l >= 'a' && *l <= 'f')) return 0;
	l = hex(l, &v->start);
	l = hex(l + 1, &v->end) + 1;
	v->prot = (u32)((l[0] == 'r') | (l[1] == 'w') << 1 | (l[2] == 'x') << 2);
	v->shared = l[3] == 's';
	l = hex(l + 5, &v->offset) + 1;
	while (*l && *l != ' ') l++;
	while (*l == ' ') l++;
	v->inode = 0;
	while (*l >= '0' && *l <= '9') v->inode = v->inode * 10 + (ul)(*l++ - '0');
	while (*l == ' ') l++;
	return l;
}

// sum returns a sum of the contents of a mapping.
static ul sum(const struct vma *v) {
	ul n = v->start;
	for (const ul *p = (const ul *)v->start; p < (const ul *)v->end; p++) n = (n << 7 | n >> 57) ^ *p;
	return n;
}

// code reports whether a mapping without a file can be read and not be written: the interpreter's code in large pages.
static int code(const struct vma *v, const char *name) { return !*name && (v->prot & 3) == 1; }

// remember_all records all mappings that are not writable. The zygote calls it once, so all forks have these mappings.
long remember_all(char *area) {
	struct head *h = (struct head *)(area + HEAD);
	struct text t = {area + READ, 0, 0, 0};
	struct vma v;
	char *l, *name;
	t.fd = (int)sys4(SYS_openat, -100, (long)"/proc/self/maps", 02000000, 0);
	if (t.fd < 0) return t.fd;
	h->count = 0;
	while ((l = line(&t)))
		if ((name = parse(l, &v)) && !(v.prot & 2) && h->count < MOST_BASE) {
			v.sum = code(&v, name) ? sum(&v) : 0;
			h->base[h->count++] = v;
		}
	sys1(SYS_close, t.fd);
	return 0;
}

// -- files of mappings -----------------------------------------------------------------------------------------------------------
struct identity { u32 mask, size; ul attributes; u32 nlink, uid, gid, mode; ul inode, bytes, blocks, more, atime[2], btime[2], ctime[2], mtime[2], rest[16]; };

// identify opens a file and reads its inode and times, so that load notices a file that was replaced since the image was saved.
static long identify(const char *name, struct identity *i) {
	long fd = sys4(SYS_openat, -100, (long)name, 02000000, 0);
	if (fd < 0) return fd;
	long r = sys5(SYS_statx, fd, (long)"", 0x1000 /* AT_EMPTY_PATH */, 0x7ff, (long)i);
	if (r >= 0) return fd;
	sys1(SYS_close, fd);
	return r;
}

// -- saving ----------------------------------------------------------------------------------------------------------------------
struct saving {
	char *area;
	struct image *image;
	ul page, end, data, names; // page size; end of the last mapping; end of the image's contents; end of its names
	u32 name;                  // offset of the name of the file that was added last
	int pagemap, anonymous, larger; // larger: the mapping is to have large pages
	u32 reserved;                   // flags of the mapping's parts without contents
};

enum { NAMES = 0xc0000, KEEP = IMAGE_SIZE - 0x2000 }; // offsets in the head of an image: file names; a buffer for the name that is being read

static struct op *add(struct saving *s, u32 kind, ul at, ul size) {
	struct op *o = &s->image->op[s->image->nops];
	if ((ul)(o + 1) > (ul)s->image + NAMES) return 0;
	s->image->nops++;
	memset(o, 0, sizeof *o);
	o->kind = kind, o->at = at, o->size = size, o->flags = PRIVATE;
	return o;
}

// unmap adds operations that unmap everything between two addresses except the area.
static long unmap(struct saving *s, ul from, ul to) {
	ul a = (ul)s->area, b = a + AREA;
	if (from < a && a < to) {
		if (!add(s, UNMAP, from, a - from)) return -E2BIG;
		from = a;
	}
	if (from >= a && from < b) from = b;
	return from < to && !add(s, UNMAP, from, to - from) ? -E2BIG : 0;
}

// pages splits a mapping into runs of pages that this process has written and runs of other pages. If each is not 0, pages calls it for
// every run. It counts the written pages in s->anonymous.
static long pages(struct saving *s, struct vma *v, long (*each)(struct saving *, struct vma *, ul, ul, int)) {
	ul *p = (ul *)(s->area + PAGES), from = v->start, to = v->start; // a run of written pages
	s->anonymous = 0;
	for (ul at = v->start; at < v->end;) {
		ul want = (v->end - at) / s->page * 8;
		if (want > PAGES_SIZE) want = PAGES_SIZE;
		if (sys4(SYS_pread64, s->pagemap, (long)p, (long)want, (long)(at / s->page * 8)) != (long)want) return -EINVAL;
		for (ul i = 0; i < want / 8; i++, at += s->page) {
			int there = p[i] >> 63, swapped = p[i] >> 62 & 1, file = p[i] >> 61 & 1;
			if (!swapped && (!there || file)) continue;
			s->anonymous++;
			if (!each) continue;
			if (at - to > RUN_GAP * s->page || (to == from && at > from)) { // a shorter gap does not get a mapping of its own
				long r = from < to ? each(s, v, from, to, 1) : 0;
				if (r >= 0) r = each(s, v, to, at, 0);
				if (r < 0) return r;
				from = at;
			}
			to = at + s->page;
		}
	}
	if (!each) return 0;
	long r = from < to ? each(s, v, from, to, 1) : 0;
	return r < 0 || to == v->end ? r : each(s, v, to, v->end, 0);
}

// piece adds an operation that maps a part of a mapping: with contents from the image, or as zero pages.
static long piece(struct saving *s, struct vma *v, ul from, ul to, int contents) {
	struct op *o = add(s, contents ? MAP_DATA : MAP_ZERO, from, to - from);
	if (!o) return -E2BIG;
	o->prot = v->prot;
	if (!contents) {
		o->flags |= ANONYMOUS | (v->prot ? s->reserved : NORESERVE);
		return s->larger && to - from >= LARGE_PAGE && !(o = add(s, LARGER, from, to - from)) ? -E2BIG : 0;
	}
	if (!(v->prot & 1)) return -ENOTSUP;
	o->offset = s->data;
	s->data += o->size;
	return 0;
}

// file adds an operation that maps a part of a file by its name. If the name does not lead to the mapped file, it fails.
static long file(struct saving *s, struct vma *v, const char *name) {
	struct identity i;
	ul n = 0;
	char *had = (char *)s->image + s->name;
	if (deleted(name) || starts(name, "/dev/") || starts(name, "/memfd:") || starts(name, "/SYSV")) return -ENOTSUP;
	if (!s->name || !same(had, name)) {
		while (name[n]) n++;
		if (s->names + n + 1 > KEEP) return -E2BIG;
		memcpy((char *)s->image + s->names, name, n + 1);
		s->name = (u32)s->names;
		s->names += n + 1;
	}
	long fd = identify(name, &i);
	if (fd < 0) return fd;
	sys1(SYS_close, fd);
	struct op *o = add(s, MAP_FILE_AT, v->start, v->end - v->start);
	if (!o || i.inode != v->inode) return o ? -ENOTSUP : -E2BIG;
	o->prot = v->prot, o->offset = v->offset, o->name = s->name;
	o->flags = v->shared ? SHARED : PRIVATE;
	o->inode = i.inode, o->seconds = i.ctime[0], o->nanoseconds = i.ctime[1] & 0xffffffff;
	return 0;
}

static struct vma *remembered(struct saving *s, struct vma *v) {
	struct head *h = (struct head *)(s->area + HEAD);
	for (ul i = 0; i < h->count; i++) {
		struct vma *b = &h->base[i];
		if (b->start == v->start && b->end == v->end && b->offset == v->offset && b->inode == v->inode && b->prot == v->prot && b->shared == v->shared) return b;
	}
	return 0;
}

static int flag(const char *flags, const char *name) {
	for (const char *f = flags; *f; f++)
		if (f[0] == ' ' && f[1] == name[0] && f[2] == name[1]) return 1;
	return 0;
}

// mapping adds the operations that restore one mapping. flags is its VmFlags line of smaps. Mappings that are wiped in a fork ("wf") or
// may be dropped ("dp") are restored without contents, because some hold the state of a random generator.
static long mapping(struct saving *s, struct vma *v, const char *name, const char *flags) {
	ul a = (ul)s->area, b = a + AREA;
	if (v->start < b && v->end > a) { // the area lies within this mapping: the kernel merges similar neighbors
		struct vma left = *v, right = *v;
		left.end = a, right.start = b;
		if (left.start < left.end) {
			long r = mapping(s, &left, name, flags);
			if (r < 0) return r;
		}
		s->end = b;
		return right.start < right.end ? mapping(s, &right, name, flags) : 0;
	}
	if (v->start >= 1ul << 63) return 0; // vsyscall, which the kernel maps itself
	long r = unmap(s, s->end, v->start);
	s->end = v->end;
	if (r < 0) return r;
	int wiped = flag(flags, "wf"), dropped = flag(flags, "dp");
	s->reserved = flag(flags, "nr") ? NORESERVE : 0;
	s->larger = flag(flags, "hg");
	if (starts(name, "[v")) return 0; // vdso and vvar: all forks of the zygote have them at the same address
	if (starts(name, "[stack]")) {
		ul sp = s->image->registers[STACK_POINTER] & ~15ul;
		struct op *o = add(s, COPY, sp, v->end - sp);
		if (!o || sp < v->start || sp >= v->end) return -EINVAL;
		o->offset = s->data;
		s->data += (o->size + s->page - 1) & ~(s->page - 1);
		return 0;
	}
	if (v->shared) return v->prot & 2 || *name != '/' ? -ENOTSUP : remembered(s, v) ? 0 : file(s, v, name);
	if (wiped || dropped) {
		struct op *o = add(s, MAP_ZERO, v->start, v->end - v->start);
		if (!o) return -E2BIG;
		o->prot = v->prot, o->flags = ANONYMOUS | (dropped ? DROPPABLE : PRIVATE);
		return !wiped || add(s, WIPE, v->start, v->end - v->start) ? 0 : -E2BIG;
	}
	struct vma *had = code(v, name) ? remembered(s, v) : 0;
	if (had && had->sum == sum(v)) return 0; // forks keep it, with its large pages
	if (*name != '/') return pages(s, v, piece);
	if (!(v->prot & 2)) {
		if ((r = pages(s, v, 0)) < 0) return r;
		if (!s->anonymous) return remembered(s, v) ? 0 : file(s, v, name);
	}
	return piece(s, v, v->start, v->end, 1);
}

static long plan(struct saving *s) {
	struct text t = {s->area + READ, 0, 0, 0};
	struct vma v = {0};
	char *l, *name = 0, *keep = (char *)s->image + KEEP;
	long r = 0;
	t.fd = (int)sys4(SYS_openat, -100, (long)"/proc/self/smaps", 02000000, 0);
	s->pagemap = (int)sys4(SYS_openat, -100, (long)"/proc/self/pagemap", 02000000, 0);
	if (t.fd < 0 || s->pagemap < 0) r = -EINVAL;
	while (r >= 0 && (l = line(&t))) {
		struct vma next;
		char *n = parse(l, &next);
		if (n) {
			ul i = 0;
			while (n[i] && i < 0x1000) i++;
			if (n[i] || name) r = -EINVAL; // no VmFlags line: the kernel does not report them
			memcpy(keep, n, i + 1);
			v = next, name = keep;
		} else if (name && starts(l, "VmFlags:")) {
			r = mapping(s, &v, name, l + 8);
			name = 0;
		}
	}
	sys1(SYS_close, t.fd);
	sys1(SYS_close, s->pagemap);
	return r < 0 ? r : name ? -EINVAL : 0;
}

static long put(int fd, const char *from, ul size, ul offset) {
	while (size) {
		long n = sys4(SYS_pwrite64, fd, (long)from, (long)size, (long)offset);
		if (n <= 0) return n < 0 ? n : -EINVAL;
		from += n, size -= (ul)n, offset += (ul)n;
	}
	return 0;
}

long save_all(char *area, int fd, ul page) {
	struct head *h = (struct head *)(area + HEAD);
	struct image *m = (struct image *)(area + IMAGE);
	struct saving s = {area, m, page, page, IMAGE_SIZE, NAMES, 0, -1, 0, 0, 0};
	ul thread_id;
	memset(m, 0, sizeof *m);
	memcpy(m->registers, h->registers, sizeof m->registers);
	m->end_of_heap = (ul)sys1(SYS_brk, 0);
	for (int i = 1; i < 65; i++) sys4(SYS_rt_sigaction, i, 0, (long)m->action[i], 8);
	sys4(SYS_rt_sigprocmask, 0, 0, (long)&m->blocked, 8);
	sys2(SYS_sigaltstack, 0, (long)m->stack); // for example that of Python's faulthandler
	long r = sys5(SYS_prctl, 40 /* PR_GET_TID_ADDRESS */, (long)&thread_id, 0, 0, 0);
	if (r >= 0) r = plan(&s);
	m->magic = MAGIC, m->size = s.data, m->data = IMAGE_SIZE;
	if (r >= 0) r = put(fd, (char *)m, sizeof *m + m->nops * sizeof(struct op), 0);
	if (r >= 0) r = put(fd, (char *)m + NAMES, s.names - NAMES, NAMES);
	for (ul i = 0; r >= 0 && i < m->nops; i++)
		if (m->op[i].kind == MAP_DATA || m->op[i].kind == COPY) r = put(fd, (char *)m->op[i].at, m->op[i].size, m->op[i].offset);
	if (r >= 0) r = sys2(SYS_ftruncate, fd, (long)s.data);
	return r < 0 ? r : 0;
}

// -- loading ---------------------------------------------------------------------------------------------------------------------
// give_up reports an error to descriptor 4, in the format of the zygote's answers, and exits.
static _Noreturn void give_up(long r) {
	u32 failed[2] = {'E', (u32)-r};
	sys3(SYS_write, 4, (long)failed, sizeof failed);
	for (;;) sys1(SYS_exit_group, 117);
}

static ul map(struct op *o, int image, int *fd, u32 *open, struct image *m) {
	if (o->kind == MAP_ZERO) return (ul)sys6(SYS_mmap, (long)o->at, (long)o->size, o->prot, o->flags | FIXED, -1, 0);
	if (o->kind == MAP_DATA) return (ul)sys6(SYS_mmap, (long)o->at, (long)o->size, o->prot, PRIVATE | FIXED, image, (long)o->offset);
	if (*fd < 0 || *open != o->name) {
		struct identity i;
		if (*fd >= 0) sys1(SYS_close, *fd);
		*fd = (int)identify((char *)m + o->name, &i);
		*open = o->name;
		if (*fd < 0) give_up(*fd);
		if (i.inode != o->inode || i.ctime[0] != o->seconds || (i.ctime[1] & 0xffffffff) != o->nanoseconds) give_up(-ESTALE);
	}
	return (ul)sys6(SYS_mmap, (long)o->at, (long)o->size, o->prot, o->flags | FIXED, *fd, (long)o->offset);
}

// apart reports whether an operation leaves the area alone, which holds the code that carries it out, and its stack.
static int apart(const struct op *o, ul area) {
	return o->at + o->size >= o->at && (o->at + o->size <= area || o->at >= area + AREA);
}

// load_all closes the image before anything that the image brings can run: code, signal handlers or restartable sequences. All forks that
// load the image have a descriptor of one file, whose attributes and times they could change.
_Noreturn void load_all(char *area, int image, long rseq, ul rseq_size, int ahead) {
	struct head *h = (struct head *)(area + HEAD);
	struct image *m = (struct image *)(area + IMAGE);
	u8 had[256];
	int *thread_id = 0, fd = -1;
	u32 open = 0;
	long r = sys6(SYS_mmap, (long)m, IMAGE_SIZE, 1, PRIVATE | FIXED, image, 0);
	if (r >= 0) r = m->magic == MAGIC ? 0 : -EINVAL;
	if (r >= 0) r = sys5(SYS_prctl, 40 /* PR_GET_TID_ADDRESS */, (long)&thread_id, 0, 0, 0);
	if (r < 0) give_up(r);
	if (rseq_size > sizeof had) rseq_size = sizeof had;
	memcpy(had, thread() + rseq, rseq_size);
	if (rseq_size && *(int *)(had + 4) < 0) rseq_size = 0; // not registered
	if (rseq_size && (r = sys4(SYS_rseq, (long)(thread() + rseq), rseq_size, 1 /* UNREGISTER */, RSEQ_SIGNATURE)) < 0) give_up(r);
	if ((ul)sys1(SYS_brk, (long)m->end_of_heap) != m->end_of_heap) give_up(-ENOMEM);
	for (ul i = 0; i < m->nops; i++) {
		struct op *o = &m->op[i];
		if (!apart(o, (ul)area)) give_up(-EINVAL);
		switch (o->kind) {
		case MAP_FILE_AT: case MAP_DATA: case MAP_ZERO:
			if ((r = (long)map(o, image, &fd, &open, m)) != (long)o->at) give_up(r < 0 && r > -4096 ? r : -EINVAL);
			break;
		case UNMAP: sys2(SYS_munmap, (long)o->at, (long)o->size); break;
		case WIPE: if (sys3(SYS_madvise, (long)o->at, (long)o->size, 18 /* MADV_WIPEONFORK */) < 0) give_up(-EINVAL); break;
		case LARGER: sys3(SYS_madvise, (long)o->at, (long)o->size, 14 /* MADV_HUGEPAGE */); break;
		case COPY:
			for (ul done = 0; done < o->size; done += (ul)r)
				if ((r = sys4(SYS_pread64, image, (long)(o->at + done), (long)(o->size - done), (long)(o->offset + done))) <= 0) give_up(r ? r : -EIO);
			break;
		default: give_up(-EINVAL);
		}
	}
	if (fd >= 0) sys1(SYS_close, fd);
	sys1(SYS_close, image);
	memcpy(thread() + rseq, had, rseq_size);
	if (rseq_size && (r = sys4(SYS_rseq, (long)(thread() + rseq), rseq_size, 0, RSEQ_SIGNATURE)) < 0) give_up(r);
	for (int i = 1; i < 65; i++) sys4(SYS_rt_sigaction, i, (long)m->action[i], 0, 8); // fails for SIGKILL and SIGSTOP
	sys2(SYS_sigaltstack, (long)m->stack, 0);
	sys4(SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, (long)&m->blocked, 0, 8);
	*thread_id = (int)sys0(SYS_gettid);
	memcpy(h->registers, m->registers, sizeof h->registers);
	sys2(SYS_munmap, (long)m, IMAGE_SIZE);
	resume(h->registers, 1 + ahead);
}

#include "fork.c"
