# tries: to hold many locks of whole files unseen: equal ones, by processes that have ended, also of a device of the host, or of files that are mapped, or eventfds that are waited for, and not open
# wall: the watch over kernel objects counts the locks of the sandbox's own file systems, whoever has taken them, and others by descriptor
# expect: killed
import ctypes, fcntl, os, select, threading, time

how, libc = os.environ["HOW"], ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
open("/tmp/file", "w").write("x" * 4096)
place = {"device": "/dev/null", "mapped elsewhere": os.path.realpath(os.__file__)}.get(how, "/tmp/file")
how = "ended" if how == "device" else how
ready, done = os.pipe()
for n in range(12):
    if os.fork():
        if how in ("waited", "mapped elsewhere"): os.read(ready, 1)
        continue
    held = [os.eventfd(0) if how == "waited" else os.open(place, os.O_RDONLY) for _ in range(450)]
    child = os.fork() if how == "ended" else 0
    if child: os.waitpid(child, 0)
    else:
        for f in held: fcntl.flock(f, fcntl.LOCK_SH)
    if how == "ended" and not child: os._exit(0)
    if how.startswith("mapped"):
        for f in held: libc.mmap(None, 4096, 1, 1, f, n % 2 * 4096), os.close(f)
    if how == "waited":
        waits = select.poll()
        for f in held: waits.register(f, 0)
        threading.Thread(target=waits.poll, daemon=True).start()
        time.sleep(0.2)
        for f in held: os.close(f)
    os.write(done, b"x")
    time.sleep(float(os.environ["SECONDS"]))
    os._exit(0)
for n in range(0 if how in ("waited", "mapped elsewhere") else 12): os.read(ready, 1)
print("holds", flush=True)
time.sleep(float(os.environ["SECONDS"]))
print("lived")
