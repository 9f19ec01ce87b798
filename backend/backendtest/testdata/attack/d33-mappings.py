# id: D33
# tries: to hold kernel memory in mappings without pages, or in the links of forks to the memory of their ancestors; it stops at some 150 MiB, or at 1.4 million mappings
# kind: a Go test runs it
import ctypes, mmap, os, time

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
page, kind = mmap.PAGESIZE, os.environ["KIND"]
mappings, processes = {"few": (30000, 1), "many": (60000, 12), "most": (60000, 24), "links": (6000, 40)}[kind]

base = libc.mmap(None, mappings * page, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
for at in range(base, base + mappings * page, 2 * page):
    libc.mprotect(at, page, 0)
    if kind == "links":
        ctypes.memset(at + page, 1, 1)
        libc.mprotect(at, page, mmap.PROT_WRITE)
        ctypes.memset(at, 1, 1)
        libc.mprotect(at, page, mmap.PROT_READ)
libc.madvise(base, mappings * page, mmap.MADV_DONTNEED)
for n in range(1, processes):
    if kind == "most" and n == 17:  # the server counts somewhat fewer than it allows; the others are made during its rest after that
        time.sleep(3)
    ahead = os.fork()
    if (ahead != 0) == (kind == "links"):  # the child goes on and forks, or the parent
        break
else:
    os.write(1, b"held\n")
time.sleep({"few": 1, "most": 30}.get(kind, 10))
