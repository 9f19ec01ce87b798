# id: B03
# tries: to reach other processes by number; signal 0 only, which sends nothing
# beside: neighbour.py
# expect reachable: own only
# expect all: refused
# expect tgkill: own only
from attempt import *

mine = {os.getpid(), os.getppid(), 1}
seen = []
for pid in range(1, 32769):
    try:
        os.kill(pid, 0)
        if pid not in mine:
            seen.append(pid)
    except OSError:
        pass
print("reachable:", seen or "own only")


def everyone():
    # signal 0 to everyone: nobody but its own tree may be there to take it
    try:
        os.kill(-1, 0)
        return "reached"
    except OSError:
        return "refused"


print("all:", "refused" if everyone() == "refused" or len(seen) == 0 else "reached")
seen = []
for pid in range(1, 32769):
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(131 if ARM else 234), ctypes.c_long(pid), ctypes.c_long(pid), ctypes.c_long(0)) == 0 and pid not in mine:
        seen.append(pid)
print("tgkill:", seen or "own only")
