# id: D26
# tries: to have one datagram go to 400 sockets, and to each of them as 64 segments; that takes up to a second with more sockets, in an interrupt, and goes on in calls that no signal ends
# kind: a Go test runs it
import os, socket, time

sockets = []
for i in range(int(os.environ["MANY"])):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("0.0.0.0", 7777))
    sockets.append(s)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
try:
    out.sendto(b"x", ("127.255.255.255", 7777))
    print("broadcast", flush=True)
except PermissionError:
    print("refused", flush=True)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.bind(("127.0.0.1", 0))  # otherwise no route leads there
end = time.monotonic() + float(os.environ["SECONDS"])
while time.monotonic() < end:
    try:
        out.sendmsg([b"x" * 64], [(17, 103, (1).to_bytes(2, "little"))], 0, ("224.0.0.1", 7777))  # UDP_SEGMENT
    except OSError:
        out.sendto(b"x", ("127.0.0.1", 7777))
print("over", flush=True)
