# id: A19 C05 C06
# tries: every socket family, with and without bits above 32
# expect families: 1 2 10
# expect[L1] families: none
# expect high: 1 2 10
# expect[L1] high: none
# expect vsock: EAFNOSUPPORT
# expect vsock-dgram: EAFNOSUPPORT
# expect raw: EPERM
# expect[L1] raw: EAFNOSUPPORT
# expect packet: EAFNOSUPPORT
# expect sctp: EAFNOSUPPORT
# expect mptcp: EAFNOSUPPORT
# expect icmp: EAFNOSUPPORT
# expect alg: EAFNOSUPPORT
# expect uevents: EAFNOSUPPORT
# expect pair-inet: EAFNOSUPPORT
# bare vsock: ok
# bare mptcp: ok
# bare uevents: ok
from attempt import *


def families(bits):
    found = []
    for n in range(0, 501):
        for kind in (1, 2, 3, 5):
            ctypes.set_errno(0)
            fd = libc.syscall(ctypes.c_long(NR["socket"][ARM]), ctypes.c_ulong(n | bits), ctypes.c_ulong(kind), ctypes.c_ulong(0))
            if fd >= 0:
                os.close(fd)
                found.append(n)
                break
    return " ".join(map(str, found)) or "none"


attempt("families", lambda: families(0))
attempt("high", lambda: families(1 << 40))
attempt("vsock", lambda: call("socket", 40, 1, 0))
attempt("vsock-dgram", lambda: call("socket", 40, 2, 0))
attempt("raw", lambda: call("socket", 2, 3, 1))
attempt("packet", lambda: call("socket", 17, 3, 0))
attempt("sctp", lambda: call("socket", 2, 1, 132))
attempt("mptcp", lambda: call("socket", 2, 1, 262))
attempt("icmp", lambda: call("socket", 2, 2, 1))
attempt("alg", lambda: call("socket", 38, 5, 0))
attempt("uevents", lambda: call("socket", 16, 3, 15))
import socket


def pair():
    socket.socketpair(socket.AF_INET, socket.SOCK_STREAM)


attempt("pair-inet", lambda: call(53 if not ARM else 199, 2, 1, 0, 0))
