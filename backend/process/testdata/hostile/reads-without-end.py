# tries: to live on after a kill, with many threads in reads of which each takes a second and which no signal ends
# wall: the server takes the memory that they read into from processes that it has killed
# expect: the kill ends the sandbox
import ctypes, mmap, os, sys, threading, time

SIZE, PARTS = 2 << 20, 1023  # almost 2 GiB in one call
THREADS = min(56, 12 * os.cpu_count())  # more than five seconds for all of them
libc = ctypes.CDLL(None, use_errno=True)
libc.preadv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_long]
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mmap.restype = ctypes.c_size_t
how = mmap.MAP_SHARED if "shared" in sys.argv else mmap.MAP_PRIVATE
into = mmap.mmap(-1, SIZE, flags=how | mmap.MAP_ANONYMOUS)
into.write(bytes(SIZE))
address = ctypes.addressof(ctypes.c_char.from_buffer(into))
parts = (ctypes.c_size_t * (2 * PARTS))(*[address, SIZE] * PARTS)  # struct iovec

# Where there are page tables, the kernel lets other threads run, which then begin such a read, too.
about = libc.mmap(None, 1 << 40, mmap.PROT_READ, 0x4022, -1, 0)  # MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
for offset in range(0, 1 << 40, 2 << 30):
    ctypes.c_char.from_address(about + offset).value
pages = os.open("/proc/self/pagemap", os.O_RDONLY)
start, inside = threading.Event(), threading.Semaphore(0)


def read():
    start.wait()
    inside.release()
    while True:
        libc.preadv(pages, parts, PARTS, about >> 12 << 3)


threading.stack_size(64 << 10)
for _ in range(THREADS):
    threading.Thread(target=read, daemon=True).start()
start.set()
for _ in range(THREADS):
    inside.acquire()
os.write(1, b"up")
time.sleep(60)
