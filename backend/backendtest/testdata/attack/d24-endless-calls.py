# id: D24
# tries: to live on after a kill, in a call that no signal ends and that takes as long as a range is large
# expect mincore: ENOMEM
# expect small-mincore: ok
# expect free: EINVAL
# expect small-free: ok
# bare mincore: ok
# bare small-mincore: ok
# bare free: ok
# bare small-free: ok
from attempt import *

libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]


def mincore(size):
    """Asks for each page of a range that has no memory."""
    def f():
        address = libc.mmap(None, size, mmap.PROT_READ, 0x4022, -1, 0)  # MAP_PRIVATE, MAP_ANONYMOUS, MAP_NORESERVE
        answer = ctypes.create_string_buffer(size >> 12)
        call("mincore", address, size, ctypes.addressof(answer))
    return f


attempt("mincore", mincore(5 << 30))
attempt("small-mincore", mincore(1 << 30))


def free(size):
    """Frees a range that has no memory."""
    def f():
        address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, 0x4022, -1, 0)
        call("madvise", address, size, 8)  # MADV_FREE
    return f


attempt("free", free(5 << 30))
attempt("small-free", free(128 << 20))
