# id: A38
# tries: to have the kernel start modprobe, write a disk's cache, stamp all packets, keep keys, walk terabytes or show an endless command line, on the host
# expect pairs: EAFNOSUPPORT
# expect commands: ENOTTY
# expect high: EPERM
# expect flush: ok
# expect flush-data: ok
# expect write-back: ok
# expect command-line: EINVAL
# expect drop: ok
# expect advice: EBADF
# expect endless: EINVAL
# bare commands: EBADF
# bare flush: EBADF
# bare write-back: EBADF
# bare command-line: ok
# bare drop: EBADF
from attempt import *

PAIRS = [(2, 1, 17), (2, 2, 6), (2, 5, 0), (2, 6, 0), (10, 1, 17), (10, 2, 6), (10, 5, 0)]  # no module has them
COMMANDS = [
    0x8940, 0x8941, 0x89A0, 0x89A1, 0x8980, 0x8981, 0x8982, 0x8983,  # SIOCGIFBR … SIOCSIFVLAN start modprobe
    0x5423,  # TIOCSETD, likewise
    0x8912, 0x8915, 0x8946,  # SIOCGIFCONF, SIOCGIFADDR and SIOCETHTOOL take the lock of all interfaces
    0x8906, 0x8907, 0x80108906, 0x80108907,  # SIOCGSTAMP
    0x9408, 0x80089418,  # BTRFS_IOC_SYNC, BTRFS_IOC_START_SYNC
    0xC0506617,  # FS_IOC_ADD_ENCRYPTION_KEY
    0xC020660B,  # FS_IOC_FIEMAP keeps others from writing to the file
]


def errors(calls):
    """The errors of all calls; ok for those that succeed."""
    found = set()
    for c in calls:
        try:
            call(*c)
            found.add("ok")
        except OSError as e:
            found.add(code(e))
    return " ".join(sorted(found))


attempt("pairs", lambda: errors(("socket", *p) for p in PAIRS))
attempt("commands", lambda: errors(("ioctl", -1, c, 0) for c in COMMANDS))
attempt("high", lambda: errors(("ioctl", -1, c | 1 << 32, 0) for c in COMMANDS))
attempt("flush", lambda: call("fsync", -1))  # of a file of the host it flushes the disk; the descriptor is not looked at
attempt("flush-data", lambda: call("fdatasync", -1))
attempt("write-back", lambda: call((277, 84)[ARM], -1, 0, 0, 7))  # sync_file_range of a file of the host writes what it has changed
attempt("command-line", lambda: call("prctl", 35, 15, ctypes.addressof(ctypes.c_uint(0)), 0, 0))  # PR_SET_MM, PR_SET_MM_MAP_SIZE: whether PR_SET_MM_MAP can be used
attempt("drop", lambda: call("fadvise64", -1, 0, 0, 4))  # POSIX_FADV_DONTNEED
attempt("advice", lambda: call("fadvise64", -1, 0, 0, 3))
attempt("endless", lambda: errors(("madvise", 0, 0, advice) for advice in (25, 102)))  # MADV_COLLAPSE, MADV_GUARD_INSTALL
