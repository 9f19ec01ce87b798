# id: A41
# tries: to wait behind all others with a lock of the host, to make the kernel's threads work, and to keep rules that no limit counts
# expect nice: unchanged
# expect nice-by-number: unchanged
# expect idle-disk: unchanged
# expect move: unchanged
# expect[weak] move: EPERM
# expect rules: ENOSYS
# expect[L1] rules: ok
# expect least-hops: ENOPROTOOPT
# expect[L1] least-hops: *
# bare nice: changed
# bare nice-by-number: changed
# bare idle-disk: changed
# bare rules: ok
# bare least-hops: ok
from attempt import *
import socket


def changes(get, change):
    """Whether a change that succeeds has an effect."""
    def f():
        before = get()
        change()
        return "unchanged" if get() == before else "changed"
    return in_child(f)


def nice():
    return os.getpriority(os.PRIO_PROCESS, 0)


def disk():
    return libc.syscall(ctypes.c_long((252, 31)[ARM]), 1, 0) >> 13  # ioprio_get: the class


def move():
    now = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(now)} if len(now) > 1 else now)


def rules():
    fd = libc.syscall(ctypes.c_long(444), (ctypes.c_uint64 * 1)(1), ctypes.c_size_t(8), 0)  # landlock_create_ruleset
    if fd < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    os.close(fd)


attempt("nice", changes(nice, lambda: os.nice(19)))
attempt("nice-by-number", changes(nice, lambda: os.setpriority(os.PRIO_PROCESS, os.getpid() if os.environ.get("WORK") == "/mnt/data" else 0, 10)))
attempt("idle-disk", changes(disk, lambda: call("ioprio_set", 1, 0, 3 << 13)))
attempt("move", changes(lambda: os.sched_getaffinity(0), move))
attempt("rules", rules)
attempt("least-hops", lambda: socket.socket().setsockopt(socket.IPPROTO_IP, 21, 1))  # IP_MINTTL
