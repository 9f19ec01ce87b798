# id: A39
# tries: to have other processes of the host, and interrupts, wake what it has prepared, in their own time, to hold a lock of all networks, and to learn which visible files others have opened
# expect inotify: ENOSYS
# expect inotify-add: ENOSYS
# expect signal: EINVAL
# expect signal-by-ioctl: unchanged
# expect no-wait: ok
# expect owner: ok
# expect owner-group: EINVAL
# expect owner-group-ex: EINVAL
# expect owner-group-by-ioctl: ENOTTY
# expect timer: ENOSYS
# expect timer-signal: ENOSYS
# expect process-end: ENOSYS
# expect source-filter: ENOPROTOOPT
# expect multicast-filter: ENOPROTOOPT
# expect names-in-memory: ENOSYS
# bare inotify: ok
# bare inotify-add: EBADF
# bare signal: ok
# bare signal-by-ioctl: changed
# bare owner: ok
# bare owner-group: ok
# bare owner-group-ex: ok
# bare owner-group-by-ioctl: ok
# bare timer: ok
# bare timer-signal: ok
# bare process-end: ok
# bare source-filter: EBADF
# bare multicast-filter: EBADF
# bare names-in-memory: EINVAL
from attempt import *
import fcntl, socket

SIGCHLD_MASK = b"\0\0\1\0\0\0\0\0"
FIOASYNC = 0x5452


def flags(fd, more):
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | more)


def by_ioctl():
    r, w = os.pipe()
    call("ioctl", w, FIOASYNC, ctypes.byref(ctypes.c_int(1)))
    return "changed" if fcntl.fcntl(w, fcntl.F_GETFL) & os.O_ASYNC else "unchanged"


def made(nr, *args):
    return lambda: call(nr[ARM], *args)


attempt("inotify", made((294, 26), 0))  # inotify_init1
attempt("inotify-add", made((254, 27), -1, b"/\0", 0x2))  # inotify_add_watch
attempt("signal", lambda: flags(os.pipe()[1], os.O_ASYNC | os.O_NONBLOCK))
attempt("signal-by-ioctl", by_ioctl)
attempt("no-wait", lambda: flags(os.pipe()[1], os.O_NONBLOCK))
attempt("owner", lambda: call("fcntl", os.pipe()[1], fcntl.F_SETOWN, os.getpid()))
attempt("owner-group", lambda: call("fcntl", os.pipe()[1], fcntl.F_SETOWN, -os.getpgrp()))  # all of its processes get SIGURG at once
attempt("owner-group-ex", lambda: call("fcntl", os.pipe()[1], 15, (2).to_bytes(4, "little") + os.getpgrp().to_bytes(4, "little")))  # F_SETOWN_EX, F_OWNER_PGRP
attempt("owner-group-by-ioctl", lambda: call("ioctl", socket.socketpair()[0].detach(), 0x8901, ctypes.byref(ctypes.c_int(-os.getpgrp()))))  # FIOSETOWN
attempt("timer", made((283, 85), 1, 0))  # timerfd_create
attempt("timer-signal", made((289, 74), -1, SIGCHLD_MASK, 8, 0))  # signalfd4
attempt("process-end", made((434, 434), os.getpid(), 0))  # pidfd_open
attempt("source-filter", lambda: call("getsockopt", -1, 0, 41, 0, 0))  # IP_MSFILTER
attempt("multicast-filter", lambda: call("getsockopt", -1, 0, 48, 0, 0))  # MCAST_MSFILTER
attempt("names-in-memory", made((437, 437), -100, b"/\0", 0, 0))  # openat2
