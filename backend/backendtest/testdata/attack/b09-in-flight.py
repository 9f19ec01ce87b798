# id: B09
# tries: to have as many descriptors on their way through sockets as the kernel grants its user, so that nobody else of that user can send one. It ends by itself.
# kind: a Go test runs it
import array, os, socket, time

fd, n, keep = os.open("/dev/null", os.O_RDONLY), 0, []
try:
    for count in (250, 1):
        refused = False
        while not refused and n < 4000:
            a, b = socket.socketpair()
            keep.append((a, b))
            a.setblocking(False)
            try:
                for _ in range(100):
                    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd] * count))])
                    n += count
            except BlockingIOError:
                pass
            except OSError:
                refused = True
except OSError:
    pass  # no more sockets
print("up", n, flush=True)
time.sleep(15)
