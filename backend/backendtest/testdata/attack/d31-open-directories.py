# id: D31
# tries: to hold names of directories, which a file system of the host keeps for each open directory that was read in part
# kind: a Go test runs it
import ctypes, os, platform, time

libc = ctypes.CDLL(None)
GETDENTS = ctypes.c_long(61 if platform.machine() == "aarch64" else 217)
left = int(os.environ["MANY"])
while left > 0:
    n = min(left, 400)
    left -= n
    r, w = os.pipe()
    if os.fork() == 0:
        for _ in range(n):
            libc.syscall(GETDENTS, os.open("/usr", os.O_RDONLY), ctypes.create_string_buffer(64), 64)
        os.write(w, b"x")
        time.sleep(float(os.environ["SECONDS"]))
        os._exit(0)
    os.read(r, 1)
    os.close(r)
    os.close(w)
time.sleep(float(os.environ["SECONDS"]))
print("over", flush=True)
