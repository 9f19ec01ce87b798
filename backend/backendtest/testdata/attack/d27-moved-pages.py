# id: D27
# tries: to keep memory that no limit counts: pages in a socket that count as one byte each, and mapped pages of received packets
# expect splice: EINVAL
# expect sendfile: EINVAL
# expect vmsplice: ENOSYS
# expect received: ENOPROTOOPT
# bare splice: ok
# bare sendfile: ok
from attempt import *
import socket


def splice():
    """Moves a byte of /dev/zero into a socket, which keeps its page."""
    zero, (taken, put) = os.open("/dev/zero", os.O_RDONLY), os.pipe()
    one, other = socket.socketpair()
    for source, target in (zero, put), (taken, one.fileno()):
        call("splice", source, 0, target, 0, 1, 0)


def sendfile():
    one, other = socket.socketpair()
    call("sendfile", one.fileno(), os.open("/dev/zero", os.O_RDONLY), 0, 1)


attempt("splice", splice)
attempt("sendfile", sendfile)
attempt("vmsplice", lambda: call("vmsplice", -1, 0, 0, 0))
attempt("received", lambda: call("getsockopt", -1, socket.IPPROTO_TCP, 35, 0, 0))  # TCP_ZEROCOPY_RECEIVE
