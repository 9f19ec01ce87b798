# tries: to fill the error queues of sockets with errors, and with timestamps that carry copies of packets. No limit counts that memory
# wall: seccomp: the socket options that turn such queues on have no effect or are refused
# expect: no byte waits in a queue: it prints 0
import os, socket, struct
held = []
release = os.uname().release.split(".")
stamps = [False, True] if (int(release[0]), int(release[1])) >= (6, 13) else [False]  # older kernels have no switch of a namespace
for family, host, level, option in (socket.AF_INET, "127.0.0.1", 0, 11), (socket.AF_INET6, "::1", 41, 25):
    there = socket.socket(family, socket.SOCK_DGRAM); there.bind((host, 0)); held.append(there)
    gone = socket.socket(family, socket.SOCK_DGRAM); gone.bind((host, 0)); nobody = gone.getsockname(); gone.close()
    for stamped in stamps:
        for _ in range(30):
            s = socket.socket(family, socket.SOCK_DGRAM); held.append(s)
            if not stamped: s.setsockopt(level, option, 1)
            for _ in range(100):
                try:
                    if stamped: s.sendmsg([b"x" * 1000], [(1, 37, struct.pack("I", 0x102))], 0, there.getsockname())
                    else: s.sendto(b"x" * 1000, nobody)
                except ConnectionError: pass
waiting = 0
for name in "udp", "udp6":
    for line in open("/proc/net/" + name).read().splitlines()[1:]:
        waiting += int(line.split()[4].split(":")[1], 16)
print(waiting >> 20)
