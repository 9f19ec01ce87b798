# tries: to keep 100 KiB of kernel memory that no limit counts, by a call that waits with control messages of that size
# wall: net.core.optmem_max of the sandbox's network namespace is 4096
# expect: the call is refused, and one with 200 descriptors is not: it prints refused 200
import socket
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
try:
    one.sendmsg([b"x"], [(0, 1, bytes(100 << 10))])  # a level that nothing reads
    answer = "sent"
except OSError:
    answer = "refused"
    socket.send_fds(one, [b"x"], [0] * 200)
print(answer, len(socket.recv_fds(other, 1, 253)[1]))
