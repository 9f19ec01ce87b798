# tries: to send a descriptor to the server over descriptor 3
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "broken pipe", and programs run without it
import _socket
_socket.socket(fileno=3).sendmsg([b'R'], [(1, 1, (0).to_bytes(4, 'little'))])
