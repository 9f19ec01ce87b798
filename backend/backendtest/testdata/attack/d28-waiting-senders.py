# id: D28
# tries: to stop a processor: a message that is taken from a full Unix socket wakes all sockets that wait to send to it, with interrupts off
# kind: a Go test runs it
import os, select, socket, time

receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind("\0receiver")
fill = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
fill.setblocking(False)
fill.connect("\0receiver")
try:
    while True:
        fill.send(b"x")
except BlockingIOError:
    pass


def waits(sockets):
    for s in sockets:
        s.connect("\0receiver")
        p = select.poll()
        p.register(s, select.POLLOUT)
        p.poll(0)


left = int(os.environ["MANY"])
while left > 0:
    n = min(left, 400)
    left -= n
    r, w = os.pipe()
    if os.fork() == 0:
        mine = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(n)]
        waits(mine)
        os.write(w, b"x")
        time.sleep(float(os.environ["SECONDS"]))
        os._exit(0)
    os.read(r, 1)
receiver.recv(1)
time.sleep(float(os.environ["SECONDS"]))
print("over", flush=True)
