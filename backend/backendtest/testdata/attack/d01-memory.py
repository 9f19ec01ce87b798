# id: D01
# tries: to hold more memory than it may, in the way that the environment names; it stops at 224 MiB
# kind: a Go test runs it
import ctypes, mmap, os, platform, sys, threading, time

kind, goal, step = os.environ["KIND"], 224 << 20, 4 << 20
held, keep = 0, []


def touch(m):
    for i in range(0, step, 4096):
        m[i] = 1


def fail(e):
    print("refused", getattr(e, "errno", None) or type(e).__name__, held >> 20, flush=True)
    sys.exit(0)


def leaderless():
    """Holds memory in a process whose first thread has ended; in stacks if it can, which no limit of data counts."""
    try:
        while len(keep) * step < goal:
            try:
                m = mmap.mmap(-1, step, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100)  # MAP_GROWSDOWN
            except OSError:
                m = mmap.mmap(-1, step, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            touch(m)
            keep.append(m)
        time.sleep(0.5)
        os.write(told, b"held")
    finally:
        os._exit(0)


def pages():
    m = mmap.mmap(-1, step, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    touch(m)
    keep.append(m)


def tables():
    """Makes as much memory as pages in page tables, by reading one page in 2 MiB."""
    m = mmap.mmap(-1, step << 9, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)  # MAP_NORESERVE
    for i in range(0, step << 9, 2 << 20):
        m[i]
    keep.append(m)


def outlived(take):
    """Holds what take makes in processes that have ended, while others read their memory: the kernel frees it only when no call
    uses it."""
    libc, size = ctypes.CDLL(None, use_errno=True), 1 << 31
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_long]
    empty = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)  # MAP_NORESERVE
    target = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
    small = os.open(os.environ["TMPDIR"] + "/small", os.O_RDWR | os.O_CREAT)
    os.ftruncate(small, step)
    for at in range(target, target + size, step):  # the same memory everywhere
        libc.mmap(at, step, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | 0x10, small, 0)  # MAP_FIXED
    for _ in range(8):
        hear, told = os.pipe()
        holder = os.fork()
        if holder == 0:
            for _ in range(7):
                take()
            os.write(told, b"held")
            time.sleep(60)
        if os.read(hear, 4) != b"held":
            raise MemoryError
        memory = os.open("/proc/%d/mem" % holder, os.O_RDONLY)
        if os.fork() == 0:
            os.write(told, b"read")
            libc.pread(memory, target, size, empty)
            os._exit(0)
        os.read(hear, 4)
        time.sleep(0.02)
        os.close(memory)
        os.kill(holder, 9)
        os.waitpid(holder, 0)


try:
    if kind.startswith("outlived"):
        outlived(tables if kind == "outlived tables" else pages)
        held = goal
    if kind == "leaderless":  # for a server that reads the memory of a process at its first thread
        hear, told = os.pipe()
        if os.fork() == 0:
            threading.Thread(target=leaderless).start()
            ctypes.CDLL(None).syscall(93 if platform.machine() == "aarch64" else 60, 0)  # exit, of this thread alone
        os.close(told)
        if os.read(hear, 4) != b"held":
            raise MemoryError
        held = goal
    if kind == "renamed":  # for a server that reads what the kernel tells of a process behind its name
        ctypes.CDLL(None).prctl(15, b"x) 1 1 1", 0, 0, 0)
        kind = "anonymous"
    if kind == "children":
        for _ in range(7):
            if os.fork() == 0:
                try:
                    m = mmap.mmap(-1, 32 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                    for i in range(0, 32 << 20, 4096):
                        m[i] = 1
                finally:
                    time.sleep(3)
                    os._exit(0)
        time.sleep(2.5)
        held = goal
    fd = {"memfd": lambda: os.memfd_create("x"), "shm": lambda: os.open("/dev/shm/x", os.O_RDWR | os.O_CREAT), "tmp": lambda: os.open(os.environ["TMPDIR"] + "/x", os.O_RDWR | os.O_CREAT)}.get(kind, lambda: -1)()
    while held < goal:
        if kind == "anonymous":
            m = mmap.mmap(-1, step, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            touch(m)
            keep.append(m)
        elif kind == "shared":
            m = mmap.mmap(-1, step)
            touch(m)
            keep.append(m)
        else:
            os.write(fd, b"x" * step)
        held += step
except (OSError, MemoryError) as e:
    fail(e)
time.sleep(0.5)
print("held", held >> 20, flush=True)
