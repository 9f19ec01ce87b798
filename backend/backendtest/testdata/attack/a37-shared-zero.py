# id: A37
# tries: memory that belongs to no process, by a shared mapping of a device, where it is not counted
# expect zero: EACCES
# expect zero-only-write: EACCES
# expect zero-truncate: EACCES
# expect zero-shared: EACCES
# expect zero-made-writable: EACCES
# expect zero-read: ok
# expect full: ENODEV
# expect null: ENODEV
# expect random: ENODEV
# bare zero: ok
from attempt import *


def mapped(path, flags, prot):
    def f():
        fd = os.open(path, flags)
        try:
            return mmap.mmap(fd, 1 << 20, mmap.MAP_SHARED, prot)
        finally:
            os.close(fd)
    return f


def reads_only():
    m = mapped("/dev/zero", os.O_RDONLY, mmap.PROT_READ)()
    for at in range(0, len(m), 4096):
        if m[at]:
            return "not zero"


def made_writable():
    m = mmap.mmap(os.open("/dev/zero", os.O_RDONLY), 4096, mmap.MAP_SHARED, mmap.PROT_READ)
    with open("/proc/self/maps") as f:
        place = [l for l in f if "/dev/zero" in l]
    start = int(place[0].split("-")[0], 16)
    call(10 if not ARM else 226, start, 4096, 3)


attempt("zero", opens("/dev/zero", os.O_RDWR))
attempt("zero-only-write", opens("/dev/zero", os.O_WRONLY))
attempt("zero-truncate", opens("/dev/zero", os.O_WRONLY | os.O_TRUNC))
attempt("zero-shared", lambda: mapped("/dev/zero", os.O_RDONLY, mmap.PROT_READ | mmap.PROT_WRITE)() and None)
attempt("zero-made-writable", made_writable)
attempt("zero-read", reads_only)
for name in "full", "null", "random":
    attempt(name, lambda: mapped("/dev/" + name, os.O_RDONLY, mmap.PROT_READ)() and None)
