# tries: to fill the host's table of IPv6 neighbors, which has no bound for the loopback device and which no limit counts
# wall: the network namespace has no route to IPv6 addresses but ::1
# expect: no packet leaves for another address: it prints 0 1
import socket
one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)


def sent(address):
    try:
        one.sendto(b"x", (address, 9, 0, 1))  # scope 1 is the loopback device
    except OSError:
        return 0
    return 1


print(sum(sent(f"{prefix}::{n:x}") for prefix in ("fe80", "ff02", "ff01", "fd00", "2001:db8", "64:ff9b") for n in range(2, 200)), sent("::1"))
