# id: D29
# tries: to take memory from pools of the whole host: in buffers of connections, in those that wait to be accepted, and in closed ones
# kind: a Go test runs it
import socket


def pair(listener):
    one = socket.create_connection(listener.getsockname())
    return one, listener.accept()[0]


with socket.create_server(("127.0.0.1", 0)) as listener:
    one, other = pair(listener)
    one.setblocking(False)
    sent = 0
    try:
        while sent < 8 << 20:
            sent += one.send(bytes(1 << 16))
    except BlockingIOError:
        pass
    other.setblocking(False)
    try:  # reading lets the kernel make both buffers larger
        while sent < 64 << 20:
            other.recv(1 << 16)
            sent += 1 << 16
    except BlockingIOError:
        pass
    most = 0
    for _ in range(50):
        waits = 0
        try:
            while waits < 8 << 20:
                waits += one.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        most = max(most, waits)
        try:
            while other.recv(1 << 16):
                pass
        except BlockingIOError:
            pass
    print("buffers", "small" if most < 1 << 20 else most)

with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    listener.listen(4096)
    held = []
    try:
        while len(held) < 1000:
            s = socket.socket()
            s.settimeout(0.5)
            s.connect(listener.getsockname())
            held.append(s)
    except OSError:
        pass
    print("queue", len(held))
    for s in held:
        s.close()

with socket.create_server(("127.0.0.1", 0)) as listener:
    for _ in range(1200):
        one, other = pair(listener)
        one.close()
        other.close()
with open("/proc/net/sockstat") as f:
    waiting = int(f.read().split(" tw ")[1].split()[0])
print("waiting", "small" if waiting <= 1024 else waiting)
