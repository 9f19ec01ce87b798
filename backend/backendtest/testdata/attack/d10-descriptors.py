# id: D10 D11 D12
# tries: to use up descriptors and to play with its streams
# expect open: EMFILE
# expect passed: EMFILE|ETOOMANYREFS|EAGAIN|ok
# expect[L1] passed: *
# expect pipe-size: bounded
# expect stdin: 0
# expect reopen: ok
from attempt import *
import array, fcntl, socket


def exhaust():
    fds = []
    try:
        for _ in range(100000):
            fds.append(os.open("/dev/null", os.O_RDONLY))
    finally:
        for f in fds:
            os.close(f)


attempt("open", exhaust)


def passed():
    a, b = socket.socketpair()
    a.setblocking(False)
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(250)]
    for _ in range(40):
        socket.send_fds(a, [b"x"], fds)


attempt("passed", passed)


def pipes():
    r, w = os.pipe()
    try:
        return "bounded" if fcntl.fcntl(w, 1031, 1 << 30) <= 1 << 20 else "unbounded"
    except OSError:
        return "bounded"


attempt("pipe-size", pipes)
attempt("stdin", lambda: len(os.read(0, 10)))


def reopen():
    with open("/proc/self/fd/1", "w"):
        pass


attempt("reopen", reopen)
fl = fcntl.fcntl(1, fcntl.F_GETFL)
fcntl.fcntl(1, fcntl.F_SETFL, fl | os.O_NONBLOCK)
