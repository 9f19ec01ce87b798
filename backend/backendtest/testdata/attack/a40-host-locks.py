# id: A40
# tries: to read the list of the host's locks, which keeps every process of the host from locking a file meanwhile
# expect[ns] locks: hidden
# expect[L1] locks: EACCES
# bare locks: shown
import fcntl, os, tempfile
from attempt import attempt

held = tempfile.TemporaryFile()
fcntl.lockf(held, fcntl.LOCK_EX)


def locks():
    with open("/proc/locks") as f:
        return "shown" if f.read() else "hidden"


attempt("locks", locks)
