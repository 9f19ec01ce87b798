# tries: to send a lingering connection with unread bytes over each descriptor that it was given. The kernel closes a sent descriptor when the receiver reads or closes the socket: in the server's thread, which would wait there
# wall: every stream to the server is a pipe, and pipes carry no descriptors
# expect: it prints "took []"
import array, os, socket, struct
server = socket.create_server(("127.0.0.1", 0))
s = socket.create_connection(server.getsockname())
peer, _ = server.accept()
s.setblocking(False)
try:
    while True: s.send(bytes(65536))
except BlockingIOError: pass
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 8))
took = []
for fd in range(5):
    for write in (b"", b"x", b"\0\0\0\1x"):
        try:
            to = socket.socket(fileno=os.dup(fd))
            to.sendmsg([write], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
            took.append(fd)
        except OSError: pass
print("took", sorted(set(took)), flush=True)
if not took:  # the program's own close would wait
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
s.close()
