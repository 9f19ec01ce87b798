# tries: to put a socket of its own in place of the channel
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the session is reported as gone
import os, socket
a, b = socket.socketpair()
os.dup2(a.fileno(), 3)
