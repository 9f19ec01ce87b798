# id: B01 B02
# tries: to find another sandbox's marker in files, processes, shared memory and sockets
# beside: neighbour.py
# expect files: none
# expect processes: none
# expect[L1] processes: EACCES
# expect sysv: ENOENT|ENOSYS
# expect abstract: ECONNREFUSED
# expect[L1] abstract: EAFNOSUPPORT
# expect datagram: ENOENT
# expect[L1] datagram: EAFNOSUPPORT
# expect port: ECONNREFUSED
# expect[L1] port: EAFNOSUPPORT
# expect mqueue: none
# expect siblings: none
from attempt import *
import socket

marker = "neighbour-marker"


def files():
    found = []
    for top in (os.environ["WORK"], os.environ["TMPDIR"], "/tmp", "/dev/shm", "/run", "/mnt", "/var", "/home", "/root"):
        for d, _, names in os.walk(top):
            found += [d + "/" + f for f in names if marker in f]
    return found or "none"


attempt("files", files)


def processes():
    found = []
    for p in os.listdir("/proc"):
        for f in ("environ", "cmdline"):
            try:
                if p.isdigit() and int(p) != os.getpid() and marker in open("/proc/%s/%s" % (p, f)).read():
                    found.append(p)
            except OSError:
                pass
    return found or "none"


attempt("processes", processes)


def sysv():
    i = libc.shmget(0x5AB0C5, 4096, 0)
    if i < 0:
        raise OSError(ctypes.get_errno(), "shmget")


attempt("sysv", sysv)


def connect(family, address):
    def f():
        s = socket.socket(family)
        s.settimeout(2)
        s.connect(address)
    return f


attempt("abstract", connect(socket.AF_UNIX, "\0sandboxmcp-neighbour"))
attempt("datagram", lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", "/run/none"))
attempt("port", connect(socket.AF_INET, ("127.0.0.1", 8080)))
attempt("mqueue", lambda: "there" if os.path.exists("/dev/mqueue") and os.access("/dev/mqueue", os.R_OK) and os.listdir("/dev/mqueue") else "none")


def siblings():
    up = os.path.dirname(os.path.dirname(os.environ["WORK"]))
    try:
        return [e for e in os.listdir(up) if "sandboxmcp" in e] or "none"
    except OSError:
        return "none"


attempt("siblings", siblings)
