"""What the payloads use: one line "name: outcome" per attempt."""
import ctypes, errno, mmap, os, platform, signal, sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
ARM = platform.machine() == "aarch64"
# name: (x86_64, aarch64)
NR = dict(
    mount=(165, 40), umount2=(166, 39), pivot_root=(155, 41), chroot=(161, 51), unshare=(272, 97), setns=(308, 268),
    clone=(56, 220), clone3=(435, 435), fsopen=(430, 430), fsmount=(432, 432), fspick=(433, 433), move_mount=(429, 429),
    open_tree=(428, 428), mount_setattr=(442, 442), io_uring_setup=(425, 425), io_uring_enter=(426, 426),
    io_uring_register=(427, 427), ptrace=(101, 117), process_vm_readv=(310, 270), process_vm_writev=(311, 271),
    pidfd_open=(434, 434), pidfd_getfd=(438, 438), bpf=(321, 280), userfaultfd=(323, 282), perf_event_open=(298, 241),
    keyctl=(250, 219), add_key=(248, 217), request_key=(249, 218), open_by_handle_at=(304, 265),
    name_to_handle_at=(303, 264), memfd_secret=(447, 447), kcmp=(312, 272), mknodat=(259, 33), syslog=(103, 116),
    sync=(162, 81), syncfs=(306, 267), clock_settime=(227, 112), adjtimex=(159, 171), sched_setscheduler=(144, 119),
    memfd_create=(319, 279), execveat=(322, 281), fanotify_init=(300, 262), mbind=(237, 235), move_pages=(279, 239),
    quotactl=(179, 60), acct=(163, 89), init_module=(175, 105), personality=(135, 92), io_setup=(206, 0),
    listmount=(458, 458), getpid=(39, 172), setpriority=(141, 140), socket=(41, 198), ioctl=(16, 29),
    setsockopt=(54, 208), fcntl=(72, 25), prlimit64=(302, 261), sched_setparam=(142, 118), sched_setattr=(314, 274),
    sched_setaffinity=(203, 122), ioprio_set=(251, 30), process_mrelease=(448, 448), seccomp=(317, 277), prctl=(157, 167),
    mmap=(9, 222), mincore=(27, 232), shmget=(29, 194), setxattr=(188, 5), setxattrat=(463, 463),
    fsync=(74, 82), fdatasync=(75, 83), fadvise64=(221, 223), madvise=(28, 233), fallocate=(285, 47), sendmmsg=(307, 269),
    splice=(275, 76), sendfile=(40, 71), vmsplice=(278, 75), getsockopt=(55, 209), futex_waitv=(449, 449), futex=(202, 98),
)


def code(e):
    return errno.errorcode.get(e.errno, str(e.errno))


def call(name, *args):
    """A system call by name or number; raises OSError."""
    nr = NR[name][ARM] if isinstance(name, str) else name
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[a if isinstance(a, bytes) or not isinstance(a, int) else ctypes.c_ulong(a & (1 << 64) - 1) for a in args])
    if r < 0:
        raise OSError(ctypes.get_errno(), name)
    return None


BARE = os.environ.get("BARE")  # outside every wall, where only what is named may be tried


def attempt(name, f):
    if BARE is not None and name not in BARE.split(","):
        return
    try:
        r = f()
        out = "ok" if r is None else str(r)
    except OSError as e:
        out = code(e)
    print(f"{name}: {out}", flush=True)


def opens(path, flags=os.O_RDONLY):
    def f():
        fd = os.open(path, flags | os.O_NONBLOCK)
        os.close(fd)
    return f


def reads(path, n=64):
    def f():
        with open(path, "rb") as fh:
            fh.read(n)
    return f


def in_child(f):
    """Carries f out in a child; its outcome, or the signal that ended it."""
    def g():
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(r)
            try:
                v = f()
                os.write(w, ("ok" if v is None else str(v)).encode())
            except OSError as e:
                os.write(w, code(e).encode())
            finally:
                os._exit(0)
        os.close(w)
        out = b""
        while chunk := os.read(r, 4096):
            out += chunk
        os.close(r)
        _, st = os.waitpid(pid, 0)
        if os.WIFSIGNALED(st):
            return "killed " + signal.Signals(os.WTERMSIG(st)).name
        return out.decode() or "nothing"
    return g


def canaries():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "canary")) as f:
        return f.read().split("\n")


def anonymous(size, shared=False, prot=mmap.PROT_READ | mmap.PROT_WRITE):
    return mmap.mmap(-1, size, (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE) | mmap.MAP_ANONYMOUS, prot)
