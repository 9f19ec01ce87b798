# id: A43
# tries: to read /proc/sys, for each read of which the kernel takes as much memory as the read asks for, up to 4 MiB, that no limit counts
# expect[ns] kernel: copies
# expect[L1] kernel: EACCES
# expect[ns] shown: copies
# expect[L1] shown: none
# bare kernel: the kernel's
import os
from attempt import attempt


def whose(path):
    """A file of the kernel has no size."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return "copies" if os.fstat(fd).st_size else "the kernel's"
    finally:
        os.close(fd)


def shown():
    found = set()
    for top, _, files in os.walk("/proc/sys"):
        for f in files:
            try:
                found.add(whose(os.path.join(top, f)))
            except OSError:
                pass  # one that only root may read
    return " and ".join(sorted(found)) or "none"


attempt("kernel", lambda: whose("/proc/sys/kernel/ostype"))
attempt("shown", shown)
