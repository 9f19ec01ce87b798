# id: A24
# tries: to see anything but its own sandbox, field by field; the same for root and for an ordinary user
# expect ids: 1000 1000
# expect[L1] ids: *
# expect groups: none
# expect[user] groups: *
# expect hostname: sandbox
# expect[L1] hostname: *
# expect domain: (none)
# expect[L1] domain: *
# expect pid: small
# expect[L1] pid: *
# expect parent: init
# expect[L1] parent: *
# expect session: leader
# expect umask: 022
# expect ignored: none
# expect blocked: none
# expect own-namespaces: 7
# expect[L1] own-namespaces: 0
# expect cgroup: /
# expect[L1] cgroup: EACCES
# expect writable: /dev/shm /mnt/data /run /tmp
# expect[L1] writable: EACCES
# expect writable-devices: none
# expect[L1] writable-devices: EACCES
# expect unknown-mounts: none
# expect[L1] unknown-mounts: EACCES
# expect devices: fd full null ptmx pts random shm stderr stdin stdout urandom zero
# expect[L1] devices: EACCES
# expect nofile: 1024
# expect[user] nofile: 512
# expect nproc: the limit
# expect[L1] nproc: *
# expect msgqueue: 65536
# expect sigpending: 128
# expect data: unlimited
# expect[weak] data: limited
# expect users: root sandbox nobody
# expect[L1] users: *
# expect personality: 0
# expect children: 0
from attempt import *
import resource, socket

real = os.path.dirname(os.path.abspath(__file__))
attempt("ids", lambda: "%d %d" % (os.getuid(), os.getgid()))
attempt("groups", lambda: " ".join(map(str, os.getgroups())) or "none")
attempt("hostname", lambda: os.uname().nodename)
buf = ctypes.create_string_buffer(65)


def domain():
    libc.getdomainname(buf, 65)
    return buf.value.decode()


attempt("domain", domain)
attempt("pid", lambda: "small" if os.getpid() < 100 else os.getpid())
attempt("parent", lambda: "init" if os.getppid() == 1 else os.getppid())
attempt("session", lambda: "leader" if os.getsid(0) == os.getpid() else os.getsid(0))


def umask():
    u = os.umask(0)
    os.umask(u)
    return "%03o" % u


attempt("umask", umask)
# Python itself ignores SIGPIPE and SIGXFSZ and handles SIGINT
quiet = {signal.SIGPIPE, signal.SIGXFSZ}
attempt("ignored", lambda: " ".join(s.name for s in sorted(signal.valid_signals()) if isinstance(s, signal.Signals) and s not in quiet and signal.getsignal(s) == signal.SIG_IGN) or "none")
attempt("blocked", lambda: " ".join(str(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, [])) or "none")


def namespaces():
    host = dict(l.split() for l in open(real + "/namespaces"))
    return sum(1 for k, v in host.items() if os.readlink("/proc/self/ns/" + k) != v)


attempt("own-namespaces", namespaces)


def cgroup():
    with open("/proc/self/cgroup") as f:
        return " ".join(sorted({l.strip().split(":", 2)[2] for l in f}))


attempt("cgroup", cgroup)


def mounts():
    with open("/proc/self/mountinfo") as f:
        for l in f:
            a, b = l.split(" - ")
            a = a.split()
            yield a[4], a[5].split(","), b.split()[0]


attempt("writable", lambda: " ".join(sorted(p for p, o, t in mounts() if "rw" in o and t != "proc" and not (p.startswith("/dev/") and p != "/dev/shm")) or "none"))
attempt("writable-devices", lambda: " ".join(sorted(p[5:] for p, o, t in mounts() if "rw" in o and p.startswith("/dev/") and p != "/dev/shm")) or "none")
known = ("/usr", "/lib", "/bin", "/sbin", "/etc", "/dev", "/proc", "/run", "/tmp", "/mnt/data")
attempt("unknown-mounts", lambda: " ".join(p for p, o, t in mounts() if p != "/" and not p.startswith(known)) or "none")
attempt("devices", lambda: " ".join(sorted(os.listdir("/dev"))))


def limit(which):
    def f():
        soft, hard = resource.getrlimit(which)
        return "unlimited" if soft < 0 else soft if soft == hard else "%d %d" % (soft, hard)
    return f


attempt("nofile", limit(resource.RLIMIT_NOFILE))
attempt("nproc", lambda: "the limit" if resource.getrlimit(resource.RLIMIT_NPROC) == (int(os.environ["MAXTASKS"]) + 1,) * 2 else resource.getrlimit(resource.RLIMIT_NPROC))
attempt("msgqueue", limit(resource.RLIMIT_MSGQUEUE))
attempt("sigpending", limit(resource.RLIMIT_SIGPENDING))
attempt("data", lambda: "unlimited" if resource.getrlimit(resource.RLIMIT_DATA)[1] < 0 else "limited")
attempt("users", lambda: " ".join(l.split(":")[0] for l in open("/etc/passwd")))
attempt("personality", lambda: libc.personality(ctypes.c_ulong(0xFFFFFFFF)))


def children():
    try:
        os.waitpid(-1, os.WNOHANG)
        return "some"
    except ChildProcessError:
        return 0


attempt("children", children)
