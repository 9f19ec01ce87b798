# tries: to take the epoll watches of its user, in the way that the environment names, so that no other program of that user gets one, or so many that what wakes them takes long
# wall: the watch over kernel objects ends a sandbox that holds more than its share
# expect: killed, unless it holds less than its share and the bound
import ctypes, os, select, socket, sys, threading, time

how = os.environ["HOW"]


def hold(n):
    fds = [os.eventfd(0) for _ in range(n)]
    polls = [select.epoll() for _ in range(n)]
    for p in polls:
        for f in fds: p.register(f, select.EPOLLIN)
    return fds, polls


def few(n):  # watches stay when the number of their descriptor is closed: sets × files × numbers
    files, polls = [os.eventfd(0) for _ in range(n)], [select.epoll() for _ in range(n)]
    for number in range(50, 450):
        for f in files:
            os.dup2(f, number)
            for p in polls: p.register(number, select.EPOLLIN)
        os.close(number)
    return files, polls


def nested(sets, files):  # what makes a pipe ready wakes each of the files, and each of them wakes all watches of the set
    inner, outer, pipe = select.epoll(), select.epoll(), os.pipe()
    for number in range(50, 50 + sets):
        outer.register(os.dup2(inner.fileno(), number), select.EPOLLIN)
        os.close(number)
    opened = [os.open(f"/proc/self/fd/{pipe[0]}", os.O_RDONLY | os.O_NONBLOCK) for _ in range(files)]
    for f in opened: inner.register(f, select.EPOLLIN)
    return inner, outer, pipe, opened


def often(watches):  # each close of a file wakes all watches of its pipe
    sets, pipe = [select.epoll() for _ in range(watches)], os.pipe()
    for p in sets: p.register(pipe[0], select.EPOLLIN)
    return sets, pipe


def sent(sets, files):  # no descriptor table shows a set that waits in a socket
    ends, files = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM), [os.eventfd(0) for _ in range(files)]
    for _ in range(sets):
        p = select.epoll()
        for f in files: p.register(f, select.EPOLLIN)
        socket.send_fds(ends[0], [b"x"], [p.fileno()])
        p.close()
    return ends, files


def passed(times, files):  # as sent, but each set arrives
    ends, files = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM), [os.eventfd(0) for _ in range(files)]
    for _ in range(times):
        p = select.epoll()
        for f in files: p.register(f, select.EPOLLIN)
        socket.send_fds(ends[0], [b"x"], [p.fileno()])
        p.close()
        os.close(socket.recv_fds(ends[1], 1, 1)[1][0])


if how.startswith("undumpable"):
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self/fd cannot be read from outside
if how in ("one process", "undumpable"):
    held = hold(60)
elif how == "many processes":
    for _ in range(6):
        if os.fork() == 0:
            held = hold(24)
            time.sleep(15)
            os._exit(0)
elif how == "below its share":
    held = hold(30)
elif how == "ended and not reaped":
    for _ in range(4):
        if os.fork() == 0: os._exit(0)
        threading.Thread(target=lambda: None).start()
elif how == "undumpable, no use":
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    held = [os.eventfd(0) for _ in range(200)]
elif how == "descriptors, no use":
    held = [os.eventfd(0) for _ in range(200)]
elif how in ("few descriptors", "undumpable and few"):
    held = few(4)
elif how == "sets in a set":
    held = nested(400, 300)
elif how == "a few sets in a set":
    held = nested(20, 40)
elif how == "a pipe that is open often":
    held = often(60)
    for _ in range(20):
        if os.fork() == 0:
            opened = [os.open(f"/proc/self/fd/{held[1][0]}", os.O_RDONLY | os.O_NONBLOCK) for _ in range(440)]
            time.sleep(15)
            os._exit(0)
elif how == "a named pipe that is open often":
    os.mkfifo("/tmp/pipe")
    pipe, sets = os.open("/tmp/pipe", os.O_RDWR | os.O_NONBLOCK), [select.epoll() for _ in range(70)]
    for p in sets: p.register(pipe, select.EPOLLIN)
elif how == "shared by many":
    held = often(10)
    for _ in range(30):
        if os.fork() == 0:
            time.sleep(15)
            os._exit(0)
elif how == "many of one pipe":
    held = often(70)
elif how == "some of one pipe":
    held = often(60)
elif how == "on their way":
    held = sent(10, 60)
elif how == "on their way and back":
    held = passed(30, 60)
elif how == "added and removed":
    p, f = select.epoll(), os.eventfd(0)
    for _ in range(3000):
        p.register(f, select.EPOLLIN)
        p.unregister(f)
elif how == "some":
    held = hold(35)
else:
    sys.exit("unknown way: " + how)
print("holds", flush=True)
time.sleep(float(os.environ["SECONDS"]))
print("lived")
