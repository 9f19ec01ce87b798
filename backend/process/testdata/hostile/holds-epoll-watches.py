# tries: to take the epoll watches of its user, in the way that the environment names, so that no other program of that user gets one, or so many that what wakes them takes long
# wall: the watch over kernel objects ends a sandbox that holds more than its share
# expect: killed, unless it holds less than its share and the bound
import ctypes, os, select, sys, threading, time

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
elif how == "descriptors, no use":
    held = [os.eventfd(0) for _ in range(200)]
elif how in ("few descriptors", "undumpable and few"):
    held = few(4)
elif how == "many":
    held = hold(160)
elif how == "sets in a set":
    held = nested(400, 300)
elif how == "a few sets in a set":
    held = nested(20, 300)
elif how == "some":
    held = hold(100)
elif how == "more in few descriptors":
    held = few(8)
else:
    sys.exit("unknown way: " + how)
print("holds", flush=True)
time.sleep(float(os.environ["SECONDS"]))
print("lived")
