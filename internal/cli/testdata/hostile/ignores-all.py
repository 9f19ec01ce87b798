# tries: to keep a server from ending: it ignores every signal, and sends lingering connections over each of its descriptors
# wall: every stream to the server is a pipe; SIGKILL, and the end of the PID namespace
# expect: the server ends within 3 s of SIGTERM
import array, os, signal, socket, struct, sys
for n in signal.valid_signals():
    try: signal.signal(n, signal.SIG_IGN)
    except (OSError, ValueError): pass
server = socket.create_server(("127.0.0.1", 0))
s = socket.create_connection(server.getsockname())
peer, _ = server.accept()
s.setblocking(False)
try:
    while True: s.send(bytes(65536))
except BlockingIOError: pass
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 15))
for fd in range(5):
    try: socket.socket(fileno=os.dup(fd)).sendmsg([b""], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno()]))])
    except OSError: pass
open("begun", "w").close()
while True:
    try: signal.pause()
    except BaseException: pass
