# What the payloads of group B look for: it holds its marker everywhere it can and waits.
import os, socket, sys, time

marker = os.environ["MARKER"]
for d in (os.environ["WORK"], os.environ["TMPDIR"], "/dev/shm"):
    try:
        open(d + "/" + marker, "w").write(marker)
    except OSError:
        pass
keep = []
try:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    i = libc.shmget(0x5AB0C5, 4096, 0o1666)
    if i >= 0:
        a = libc.shmat(i, None, 0)
        if a not in (None, ctypes.c_void_p(-1).value):
            ctypes.memmove(a, marker.encode(), len(marker))
except OSError:
    pass
for family, address in ((socket.AF_UNIX, "\0" + "sandboxmcp-neighbour"), (socket.AF_INET, ("127.0.0.1", 8080))):
    try:
        s = socket.socket(family)
        s.bind(address)
        s.listen()
        keep.append(s)
    except OSError:
        pass
print("up", flush=True)
time.sleep(60)
