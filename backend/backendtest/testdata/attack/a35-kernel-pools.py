# id: A35
# tries: socket options, commands and calls that take kernel memory that no limit counts, or a pool of the whole host
# expect options: ENOPROTOOPT
# expect[L1] options: EBADF|ENOPROTOOPT
# expect high: ENOPROTOOPT
# expect buffers: unchanged
# expect[L1] buffers: EAFNOSUPPORT
# expect ofd: EINVAL
# expect pipe: EPERM
# expect lease: EPERM
# expect notify: EPERM
# expect filter: EINVAL
# expect prctl-filter: EINVAL
# expect futexes: EINVAL
# expect huge: ENOMEM
# expect huge-shm: ENOMEM|ENOSYS
# expect huge-memfd: ENOMEM|ENOSYS
# expect shared-files: EPERM
# expect own-files: EPERM
# expect unshared-files: EINVAL
# expect access-list: ENOSPC
# expect[L1] access-list: ENOTSUP
# expect default-list: ENOSPC
# expect[L1] default-list: ENOTSUP
# expect attribute: ok|EOPNOTSUPP
# expect[L1] attribute: ENOTSUP
# expect attribute-at: ENOSYS
# expect core-scheduling: EINVAL
# bare ofd: EFAULT
# bare pipe: EBADF
from attempt import *
import fcntl, socket, struct

DENIED = [
    (1, 26), (1, 29), (1, 32), (1, 33), (1, 37), (1, 50), (1, 51), (1, 52), (1, 60), (1, 73),  # SO_ATTACH_FILTER … SO_RESERVE_MEM
    (6, 14), (6, 27), (6, 31), (6, 32), (6, 33), (6, 37), (6, 38), (6, 39), (6, 40),  # TCP_MD5SIG … TCP_AO_INFO
    (17, 1), (17, 100), (17, 104),  # UDP_CORK, UDP_ENCAP, UDP_GRO
    (0, 4), (0, 35), (0, 39), (0, 41), (0, 42), (0, 48), (0, 64),  # IP_OPTIONS, memberships, netfilter
    (41, 2), (41, 6), (41, 20), (41, 22), (41, 27), (41, 32), (41, 42), (41, 54), (41, 57), (41, 59),
    (58, 1), (255, 1), (270, 1), (282, 1), (284, 1),
]


def options(bits):
    """The errors of all options that must not be; of a descriptor that is none where there are no sockets."""
    def f():
        found = set()
        for level, option in DENIED:
            try:
                call("setsockopt", -1, level | bits, option | bits, b"\0" * 128, 128)
                found.add("%d/%d is allowed" % (level, option))
            except OSError as e:
                found.add(code(e) if e.errno == errno.ENOPROTOOPT else "%d/%d: %s" % (level, option, code(e)))
        return " ".join(sorted(found))
    return f


def buffers():
    """A wish for larger buffers is taken without a word and changes nothing."""
    with socket.socket() as s:
        for option in socket.SO_SNDBUF, socket.SO_RCVBUF:
            before = s.getsockopt(socket.SOL_SOCKET, option)
            s.setsockopt(socket.SOL_SOCKET, option, 8 << 20)
            if s.getsockopt(socket.SOL_SOCKET, option) != before:
                return "changed"
    return "unchanged"


def shares_files():
    pid = libc.syscall(ctypes.c_long(NR["clone"][ARM]), ctypes.c_ulong(0x400 | 17), 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    os.waitpid(pid, 0)


def access_list(name):
    """An access list of 4000 entries, which is 32 KiB of kernel memory for a file."""
    def f():
        path = os.path.join(os.environ["WORK"], "listed")
        os.makedirs(path, exist_ok=True)
        entries = [(1, 7, -1)] + [(2, 7, 1000)] * 4000 + [(4, 5, -1), (16, 7, -1), (32, 5, -1)]
        os.setxattr(path, name, struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in entries))
    return f


attempt("options", options(0))
attempt("high", options(1 << 32))
attempt("buffers", buffers)
attempt("ofd", lambda: call("fcntl", 1, 37, 0))
attempt("pipe", lambda: call("fcntl", -1, 1031, 1 << 20))
attempt("lease", lambda: call("fcntl", -1, 1024, 1))
attempt("notify", lambda: call("fcntl", -1, 1026, 1))
attempt("filter", lambda: call("seccomp", 1, 0, 0))
attempt("prctl-filter", lambda: call("prctl", 22, 2, 0))
attempt("futexes", lambda: call("prctl", 78, 1, 2, 0))
attempt("huge", lambda: call("mmap", 0, 2 << 20, 3, 0x40022, -1, 0))
attempt("huge-shm", lambda: call("shmget", 0, 2 << 20, 0o4600))
attempt("huge-memfd", lambda: call("memfd_create", b"x", 4))
attempt("shared-files", shares_files)
attempt("own-files", lambda: call("clone", 0x10900, 0, 0, 0, 0))
attempt("unshared-files", lambda: call(436, 1000, 1000, 2))
attempt("access-list", access_list("system.posix_acl_access"))
attempt("default-list", access_list("system.posix_acl_default"))
attempt("attribute", lambda: os.setxattr(os.environ["WORK"], "user.note", b"x" * 100))
attempt("attribute-at", lambda: call("setxattrat", -100, os.environ["WORK"].encode(), 0, b"user.note", 0, 0))
attempt("core-scheduling", lambda: call("prctl", 62, 1, 0, 0, 0))
