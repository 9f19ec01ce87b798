# id: D30
# tries: to make the list of sockets long. A read at its end goes on after a kill until the kernel has written all of it
# kind: a Go test runs it
import os, socket, time

left = int(os.environ["MANY"])
while left > 0:
    n = min(left, 400)
    left -= n
    r, w = os.pipe()
    if os.fork() == 0:
        held = [socket.socketpair() for _ in range(n // 2)]
        os.write(w, b"x")
        time.sleep(float(os.environ["SECONDS"]))
        os._exit(0)
    os.read(r, 1)
    os.close(r)
    os.close(w)
time.sleep(float(os.environ["SECONDS"]))
print("over", flush=True)
