# id: D14
# tries: to hold more memory than it may in the buffers of sockets that it never reads; it stops at 128 MiB
# kind: a Go test runs it
import ctypes, os, socket, sys, time

goal, keep, queued = 128 << 20, [], 0
block = b"x" * 32768


def tcp():
    global queued
    l = socket.socket()
    l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    l.bind(("127.0.0.1", 0))
    l.listen(200)
    while queued < goal and len(keep) < 200:
        c = socket.socket()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        c.settimeout(2)
        c.connect(l.getsockname())
        s, _ = l.accept()
        keep.append((c, s))
        c.setblocking(False)
        try:
            while queued < goal:
                queued += c.send(block)
        except BlockingIOError:
            pass


def udp():
    global queued
    c = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while len(keep) < 400:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        s.bind(("127.0.0.1", 0))
        s.setblocking(False)
        keep.append(s)
        for _ in range(24):
            c.sendto(block, s.getsockname())
    time.sleep(1)
    for s in keep:  # what was not kept was dropped without a word
        try:
            while True:
                queued += len(s.recv(65536))
        except BlockingIOError:
            pass


def disconnect(s):
    """Takes a socket of UDP back from the list of the kernel. What waits in it stays."""
    if ctypes.CDLL(None).connect(s.fileno(), b"\0" * 16, 16) != 0:  # AF_UNSPEC
        raise OSError(0, "connect")


def undone():
    """As udp, from sockets that are in no list."""
    global queued
    while len(keep) < 400:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(("127.0.0.1", 0))
        s.connect(s.getsockname())
        s.setblocking(False)
        keep.append(s)
        for _ in range(6):
            s.send(block)
        disconnect(s)
    time.sleep(1)
    for s in keep:
        try:
            while True:
                queued += len(s.recv(65536))
        except BlockingIOError:
            pass


def corked():
    """Datagrams that are begun and never sent, in several processes, from sockets that are in no list."""
    global queued
    for _ in range(5):
        r, w = os.pipe()
        if os.fork() == 0:
            sent = 0
            try:
                while len(keep) < 450:
                    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    s.connect(("127.0.0.1", 9))
                    sent += s.send(block + block[:-1000], socket.MSG_MORE)
                    disconnect(s)
                    keep.append(s)
            finally:
                os.write(w, b"%d" % sent)
            time.sleep(3)
            os._exit(0)
        os.close(w)
        queued += int(os.read(r, 32) or 0)
    time.sleep(1)


try:
    globals()[os.environ["KIND"]]()
except OSError as e:
    print("refused", e.errno, file=sys.stderr)
print(queued >> 20, flush=True)
time.sleep(1)
os._exit(0)
