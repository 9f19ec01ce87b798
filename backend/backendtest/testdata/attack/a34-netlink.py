# id: A34
# tries: sockets of netlink, whose queues no limit counts; what asks for addresses without them still answers
# expect netlink: refused
# expect high: refused
# expect pair: EAFNOSUPPORT
# expect interfaces: OSError
# expect[L1] interfaces: *
# expect addresses: ok
# expect configured: ok
# expect loopback: ok
# expect[L1] loopback: EAFNOSUPPORT
# bare netlink: open
from attempt import *
import socket


def netlink(bits):
    """Every protocol of netlink by each type, with and without bits above 32."""
    def f():
        for protocol in range(24):
            for kind in (2, 3, 2 | 0x80000):
                try:
                    call("socket", 16 | bits, kind, protocol)
                    return "open"
                except OSError as e:
                    if e.errno != errno.EAFNOSUPPORT:
                        return code(e)
        return "refused"
    return f


def interfaces():
    try:
        socket.if_nameindex()
        return "told"
    except OSError:
        return "OSError"


def addresses(flags):
    def f():
        found = {a[4][0] for a in socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM, flags=flags)}
        return None if found and found <= {"127.0.0.1", "::1"} else str(found)
    return f


def loopback():
    with socket.create_server(("127.0.0.1", 0)) as s, socket.create_connection(s.getsockname(), 5) as c:
        a, _ = s.accept()
        c.sendall(b"x")
        return None if a.recv(1) == b"x" else "nothing came"


attempt("netlink", netlink(0))
attempt("high", netlink(1 << 40))
attempt("pair", lambda: call(53 if not ARM else 199, 16, 3, 0, 0))
attempt("interfaces", interfaces)
attempt("addresses", addresses(0))
attempt("configured", addresses(socket.AI_ADDRCONFIG))
attempt("loopback", loopback)
