# id: D34
# tries: to hold memory of the kernel in pipes and Unix sockets, by descriptors, messages or calls that wait
# kind: a Go test runs it
import os, select, socket, threading, time

KIND, MIB = os.environ["KIND"], int(os.environ["MIB"])
held = []


def fill(write):
    size = 65536
    while size:
        try:
            write(bytes(size))
        except BlockingIOError:
            size //= 2


def pipe(count):
    """Full pipes whose other end is closed."""
    for _ in range(count):
        r, w = os.pipe2(os.O_NONBLOCK)
        fill(lambda b: os.write(w, b))
        os.close(w)
        held.append(r)


def pair(count, closed=False):
    for _ in range(count):
        a, b = socket.socketpair()
        a.setblocking(False)
        fill(a.send)
        held.append(b)
        if closed:
            a.close()
        else:
            held.append(a)


def datagrams(count):
    """Sockets that have messages of senders that are closed."""
    for i in range(count):
        r = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        r.bind("\0%d %d" % (os.getpid(), i))
        held.append(r)
        for _ in range(5):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
                s.connect(r.getsockname())
                s.send(bytes(100000))
                s.send(bytes(100000))


def waits(count):
    """Pipes that only calls keep, which wait for them."""
    threading.stack_size(256 << 10)
    for _ in range(count):
        files, call = [], select.poll()
        for _ in range(200):
            r, w = os.pipe2(os.O_NONBLOCK)
            fill(lambda b: os.write(w, b))
            files += [r, w]
        for f in files:
            call.register(f, 0)
        threading.Thread(target=call.poll, daemon=True).start()
        time.sleep(0.02)
        for f in files:
            os.close(f)


def children(count, f, *args):
    for _ in range(count):
        r, w = os.pipe()
        if os.fork() == 0:
            f(*args)
            os.write(w, b"x")
            time.sleep(10)
            os._exit(0)
        os.close(w)
        os.read(r, 1)
        os.close(r)


if KIND == "pipes":  # above 64 MiB of a user each has 8 KiB
    children(MIB // 3, pipe, 400)
elif KIND == "sockets":
    children(MIB // 40, pair, 200)
elif KIND == "closed":
    children(MIB // 80, pair, 400, True)
elif KIND == "datagrams":
    children(4, datagrams, MIB // 4)
elif KIND == "waits":
    waits(MIB // 4)
elif KIND == "few":
    memory = bytearray(60 << 20)
    idle = [socket.socketpair() for _ in range(100)] + [os.pipe() for _ in range(60)]
    for s in idle[:100]:
        s[0].send(b"x")
    for r, w in idle[100:120]:
        os.write(w, b"x")
    for i in range(400):  # counts are made while it runs
        for s in idle[:100]:
            s[1].recv(1)
            s[0].send(b"x")
os.write(1, b"held\n")
time.sleep(1 if KIND == "few" else 5)
