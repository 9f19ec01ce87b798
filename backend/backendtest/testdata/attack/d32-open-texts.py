# id: D32
# tries: to hold texts of /proc/PID/fdinfo, which the kernel keeps for each open file, in descriptors or in calls that wait to send them
# kind: a Go test runs it
import fcntl, os, socket, threading, time

KIND, MANY = os.environ["KIND"], int(os.environ["MANY"])
locked = os.open(os.environ["WORK"] + "/locked", os.O_RDWR | os.O_CREAT)
for i in range(300):
    fcntl.lockf(locked, fcntl.LOCK_EX, 1, 2 * i)


def opened(path):
    file = os.open(path, os.O_RDONLY)
    os.read(file, 1)
    return file


def sends(files):
    """Waits to send files, which are then open only in the call."""
    one, other = socket.socketpair()
    kept.append(other)
    one.setblocking(False)
    try:
        while True:
            one.send(bytes(4096))
    except BlockingIOError:
        one.setblocking(True)
    threading.Thread(target=lambda: socket.send_fds(one, [b"x"], files), daemon=True).start()
    time.sleep(0.1)
    for file in files:
        os.close(file)


kept = []
text = "/proc/%d/fdinfo/%d" % (os.getpid(), locked)
if KIND == "open":
    kept += [opened(text) for _ in range(MANY)]
else:
    for _ in range(0, MANY, 20):
        sends([opened(text if KIND == "sent" else "/proc/self/stat") for _ in range(20)])
time.sleep(float(os.environ["SECONDS"]))
print("over", flush=True)
