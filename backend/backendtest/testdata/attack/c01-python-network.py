# id: C01 C04 C07
# tries: every way of Python and of raw system calls to the network and to the host's sockets
# expect tcp: ENETUNREACH
# expect[L1] tcp: EAFNOSUPPORT
# expect tcp6: ENETUNREACH|EADDRNOTAVAIL
# expect[L1] tcp6: EAFNOSUPPORT
# expect udp: ENETUNREACH
# expect[L1] udp: EAFNOSUPPORT
# expect fastopen: ENETUNREACH
# expect[L1] fastopen: EAFNOSUPPORT
# expect metadata: ENETUNREACH
# expect[L1] metadata: EAFNOSUPPORT
# expect[net] tcp: ok
# expect[told] tcp: ECONNREFUSED
# expect[net] udp: ok
# expect[told] udp: ok
# expect[net] fastopen: ok
# expect[told] fastopen: ECONNREFUSED
# expect[net] metadata: ok
# expect[told] metadata: ECONNREFUSED
# expect name: refused
# expect[net] name: ok
# expect raw-call: ENETUNREACH
# expect[net] raw-call: ok
# expect[told] raw-call: ECONNREFUSED
# expect[L1] raw-call: EAFNOSUPPORT
# expect child: refused
# expect[net] child: ok
# expect docker: ENOENT|ECONNREFUSED
# expect[L1] docker: EAFNOSUPPORT
# expect host-socket: ENOENT
# expect[L1] host-socket: EAFNOSUPPORT
# expect host-abstract: ECONNREFUSED
# expect[L1] host-abstract: EAFNOSUPPORT
# expect interfaces: EAFNOSUPPORT
# expect routes: 0
# expect[L1] routes: EACCES
# bare host-socket: ok
# bare host-abstract: ok
from attempt import *
import socket, struct, subprocess

host = "192.0.2.1"  # an address that documents use and nobody has


def connect(family, address, kind=socket.SOCK_STREAM):
    def f():
        s = socket.socket(family, kind)
        s.settimeout(3)
        s.connect(address)
        if kind == socket.SOCK_DGRAM:
            s.send(b"x")
    return f


attempt("tcp", connect(socket.AF_INET, (host, 80)))
attempt("tcp6", connect(socket.AF_INET6, ("2001:db8::1", 80)))
attempt("udp", connect(socket.AF_INET, (host, 53), socket.SOCK_DGRAM))
attempt("fastopen", lambda: socket.socket().sendto(b"x", 0x20000000, (host, 80)) and None)
attempt("metadata", connect(socket.AF_INET, ("169.254.169.254", 80)))

def name():
    try:
        socket.getaddrinfo("example.com", 80)
    except OSError:
        return "refused"

attempt("name", name)

def raw():
    fd = libc.syscall(ctypes.c_long(NR["socket"][ARM]), ctypes.c_long(2), ctypes.c_long(1), ctypes.c_long(0))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "socket")
    a = struct.pack("<HHI", 2, 0x5000, 0x010200C0) + bytes(8)
    call(203 if ARM else 42, fd, a, 16)

attempt("raw-call", raw)
attempt("child", lambda: subprocess.run([sys.executable, "-I", "-S", "-c", "import _socket\ntry:\n s=_socket.socket(2,1); s.settimeout(3); s.connect(('192.0.2.1',80)); print('ok')\nexcept OSError: print('refused')"], capture_output=True, text=True).stdout.strip())
attempt("docker", connect(socket.AF_UNIX, "/var/run/docker.sock"))
path, abstract = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "socket")).read().split("\n")
attempt("host-socket", connect(socket.AF_UNIX, path))
attempt("host-abstract", connect(socket.AF_UNIX, "\0" + abstract))


def interfaces():
    socket.socket().close()
    return " ".join(n for _, n in socket.if_nameindex())

attempt("interfaces", interfaces)
attempt("routes", lambda: sum(1 for l in open("/proc/self/net/route")) - 1)
