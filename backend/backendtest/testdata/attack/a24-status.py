# id: A24
# tries: what the kernel says of this process's rights
# expect caps: 0 0 0 0 0
# expect[L1,user] caps: 0 0 0 1 0
# expect nnp: 1
# expect seccomp: 2
# expect uid: not root
# expect dumpable: 1
# expect securebits: 47
# expect[L1,user] securebits: 0
# expect maps: one id
# expect[L1] maps: EACCES
# expect tty: none
# expect core: 1 1
# expect core-lowered: 1 1
# expect dumped: 00000000
# expect[L1] dumped: EACCES
# expect dumped-more: EACCES
# expect memlock: low
from attempt import *
import resource, struct


class Head(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


def caps():
    d = (ctypes.c_uint32 * 6)()
    libc.capget(ctypes.byref(Head(0x20080522, 0)), d)
    bound = max(libc.prctl(23, c, 0, 0, 0) == 1 for c in range(64))
    ambient = max(libc.prctl(47, 1, c, 0, 0) == 1 for c in range(64))
    return "%d %d %d %d %d" % (d[0] | d[3], d[1] | d[4], d[2] | d[5], bound, ambient)


attempt("caps", caps)
attempt("nnp", lambda: libc.prctl(39, 0, 0, 0, 0))
attempt("seccomp", lambda: libc.prctl(21, 0, 0, 0, 0))
attempt("uid", lambda: "root" if 0 in os.getresuid() + os.getresgid() else "not root")
attempt("dumpable", lambda: libc.prctl(3, 0, 0, 0, 0))
attempt("securebits", lambda: libc.prctl(27, 0, 0, 0, 0))


def maps():
    with open("/proc/self/uid_map") as f:
        l = f.read().split("\n")
    return "one id" if len(l) == 2 and l[0].split()[0] == "1000" and l[0].split()[2] == "1" else l


attempt("maps", maps)
try:
    os.open("/dev/tty", os.O_RDWR)
    print("tty: there")
except OSError:
    print("tty: none")
attempt("core", lambda: "%d %d" % resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # with 0 the kernel starts the host's program for core dumps
attempt("core-lowered", lambda: "%d %d" % resource.getrlimit(resource.RLIMIT_CORE))
FILTER = "/proc/self/coredump_filter"  # which memory a dump has; some ways to take dumps know no limit


def dump_more():
    with open(FILTER, "w") as f:
        f.write("0x7f")


attempt("dumped", lambda: open(FILTER).read().strip())
attempt("dumped-more", dump_more)
attempt("memlock", lambda: "low" if max(resource.getrlimit(resource.RLIMIT_MEMLOCK)) <= 1 << 20 else "high")
