# tries: to hold many locks of whole files unseen: equal ones, by processes that have ended, also of a device of the host, or of files that are mapped, also by a process whose first thread has ended, or eventfds that are waited for or being sent, and not open
# wall: the watch over kernel objects counts the locks of the sandbox's own file systems, whoever has taken them, and others by descriptor
# expect: killed
import ctypes, fcntl, os, platform, select, socket, threading, time

how, libc = os.environ["HOW"], ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
open("/tmp/file", "w").write("x" * 4096)
place = {"device": "/dev/null"}.get(how, os.path.realpath(os.__file__) if how.startswith("mapped elsewhere") else "/tmp/file")
how = "ended" if how == "device" else how
later = ("waited", "sent", "mapped elsewhere", "mapped elsewhere headless")
ready, done = os.pipe()
for n in range(12):
    if os.fork():
        if how in later: os.read(ready, 1)
        continue
    held = [os.eventfd(0) if how in ("waited", "sent") else os.open(place, os.O_RDONLY) for _ in range(450)]
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
    if how == "sent":
        a, b = socket.socketpair()
        try:
            while True: a.send(b"x" * 4096, socket.MSG_DONTWAIT)
        except BlockingIOError: pass
        for part in held[:225], held[225:]: threading.Thread(target=socket.send_fds, args=(a, [b"x"], part), daemon=True).start()
        time.sleep(0.2)
        for f in held: os.close(f)
    if how.endswith("headless"):
        threading.Thread(target=lambda: (os.write(done, b"x"), time.sleep(float(os.environ["SECONDS"])))).start()
        libc.syscall({"x86_64": 60}.get(platform.machine(), 93), 0)
    os.write(done, b"x")
    time.sleep(float(os.environ["SECONDS"]))
    os._exit(0)
for n in range(0 if how in later else 12): os.read(ready, 1)
print("holds", flush=True)
time.sleep(float(os.environ["SECONDS"]))
print("lived")
