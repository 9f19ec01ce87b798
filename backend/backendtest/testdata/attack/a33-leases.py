# id: A33
# tries: to make everybody wait who opens a file of the host, and to be told what happens in a directory of the host
# expect lease-system: EPERM
# expect lease-read: EPERM
# expect lease-write: EPERM
# expect lease-high-bits: EPERM
# expect notify-system: EPERM
# expect notify-own: EPERM
# expect lock-own: ok
# bare lease-read: ok
# bare notify-own: ok
# bare lock-own: ok
from attempt import *
import fcntl

SETLEASE, NOTIFY = 1024, 1026
own = os.environ.get("TMPDIR", ".") + "/leased"
with open(own, "w"):
    pass


def on(path, command, argument, flags=os.O_RDONLY):
    def f():
        fd = os.open(path, flags)
        try:
            fcntl.fcntl(fd, command, argument)
        finally:
            os.close(fd)
    return f


def high_bits():
    fd = os.open(own, os.O_RDONLY)
    try:
        call(72 if not ARM else 25, fd, 1 << 32 | SETLEASE, fcntl.F_RDLCK)  # the kernel reads 32 bits
    finally:
        os.close(fd)


def lock():
    with open(own, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)


attempt("lease-system", on("/usr/bin/env", SETLEASE, fcntl.F_RDLCK))
attempt("lease-read", on(own, SETLEASE, fcntl.F_RDLCK))
attempt("lease-write", on(own, SETLEASE, fcntl.F_WRLCK, os.O_RDWR))
attempt("lease-high-bits", high_bits)
attempt("notify-system", on("/usr/bin", NOTIFY, 0x20))
attempt("notify-own", on(os.path.dirname(own), NOTIFY, 0x20))
attempt("lock-own", lock)
