# id: D24
# tries: to live on after a kill, in a call that no signal ends and that takes as long as a range is large, as a file has many mappings, or as a list is long
# expect mincore: ENOMEM
# expect small-mincore: ok
# expect free: EINVAL
# expect small-free: ok
# expect needed: ok
# expect small-needed: ENOMEM
# expect hole: ENOTSUP
# expect removed: EINVAL
# expect sought: EINVAL
# expect sought-data: EINVAL
# expect sought-plainly: ok
# expect written-out: EINVAL
# expect cold: EINVAL
# expect many-waits: ENOSYS
# expect moved-waits: ENOSYS
# expect wait-to-move: ENOSYS
# expect moved-plainly: ok
# expect kept: EPERM
# expect kept-by-exec: EPERM
# expect allocated: ok
# expect many-datagrams: ENOSYS
# expect[L1] many-datagrams: EAFNOSUPPORT
# expect few-datagrams: ok
# expect[L1] few-datagrams: EAFNOSUPPORT
# expect direct: EINVAL
# expect direct-later: EINVAL
# expect many-received: ENOSYS
# expect few-received: 255
# bare mincore: ok
# bare hole: ok
# bare removed: ok
# bare sought: ok
# bare sought-data: ok
# bare sought-plainly: ok
# bare written-out: ok
# bare cold: ok
# bare many-waits: EINVAL
# bare moved-waits: ok
# bare moved-plainly: ok
# bare kept: EBADF
# bare kept-by-exec: EBADF
# bare allocated: ok
# bare many-datagrams: ok
# bare few-datagrams: ok
# bare direct: *
# bare direct-later: ok
# bare many-received: 256
# bare few-received: 255
# bare needed: ENOMEM
# bare small-needed: ENOMEM
# bare small-mincore: ok
# bare free: ok
# bare small-free: ok
import fcntl, socket, tempfile
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


def needed(size):
    """Asks to read a range ahead in which nothing is mapped. A call that does nothing succeeds."""
    def f():
        address = libc.mmap(None, size, 0, 0x4022, -1, 0)
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
        call("madvise", address, size, 3)  # MADV_WILLNEED
    return f


attempt("needed", needed(5 << 30))
attempt("small-needed", needed(128 << 20))


def hole(mode, advice=None):
    """Changes a file that is mapped."""
    def f():
        with tempfile.TemporaryFile() as file:
            file.write(bytes(8192))
            file.flush()
            m = mmap.mmap(file.fileno(), 8192)
            if mode is None:
                m.madvise(advice, 0, 4096)
            else:
                call("fallocate", file.fileno(), mode, 0, 4096)
    return f


attempt("hole", hole(3))  # FALLOC_FL_PUNCH_HOLE, FALLOC_FL_KEEP_SIZE
attempt("removed", hole(None, 9))  # MADV_REMOVE
attempt("written-out", hole(None, 21))  # MADV_PAGEOUT
attempt("cold", hole(None, 20))  # MADV_COLD
attempt("allocated", hole(0))


def sought(way):
    """Looks for something in a file with contents."""
    def f():
        with tempfile.TemporaryFile() as file:
            file.write(bytes(8192))
            file.flush()
            os.lseek(file.fileno(), 0, way)
    return f


attempt("sought", sought(os.SEEK_HOLE))
attempt("sought-data", sought(os.SEEK_DATA))
attempt("sought-plainly", sought(os.SEEK_END))


attempt("many-waits", lambda: call("futex_waitv", 0, 0, 0, 0, 0))


def moved(operation, wake):
    """Moves the threads that wait at an address to another; there are none."""
    def f():
        one, other = ctypes.c_uint32(0), ctypes.c_uint32(0)
        call("futex", ctypes.addressof(one), operation, wake, 0, ctypes.addressof(other), 0)
    return f


attempt("moved-waits", moved(12 | 128, 1))  # FUTEX_CMP_REQUEUE_PI_PRIVATE
attempt("wait-to-move", lambda: call("futex", 0, 11 | 128, 0, 0, 0, 0))  # FUTEX_WAIT_REQUEUE_PI_PRIVATE
attempt("moved-plainly", moved(4 | 128, 1))  # FUTEX_CMP_REQUEUE_PRIVATE

attempt("kept", lambda: call("fcntl", -1, 1033, 2))  # F_ADD_SEALS, F_SEAL_SHRINK: the server empties such files
attempt("kept-by-exec", lambda: call("fcntl", -1, 1033, 0x20))  # F_SEAL_EXEC, which sets F_SEAL_SHRINK, too


def datagrams(number):
    """Sends empty datagrams, of which a socket keeps the first few."""
    def f():
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        messages = ctypes.create_string_buffer(64 * number)  # struct mmsghdr
        call("sendmmsg", one.fileno(), ctypes.addressof(messages), number, socket.MSG_DONTWAIT)
    return f


attempt("many-datagrams", datagrams(1024))
attempt("few-datagrams", datagrams(2))


def received(number):
    """Receives nothing from a stream that has ended, again and again. Returns how often."""
    def f():
        one, other = socket.socketpair()
        other.close()
        messages = ctypes.create_string_buffer(64 * number)  # struct mmsghdr
        n = libc.syscall(ctypes.c_long((299, 243)[ARM]), one.fileno(), messages, number, 0, None)  # recvmmsg
        if n < 0:
            raise OSError(ctypes.get_errno(), "recvmmsg")
        return n
    return f


attempt("many-received", received(256))
attempt("few-received", received(255))


def direct():
    """Opens a visible file so that reads wait for the disk, which no signal ends."""
    os.close(os.open(sys.executable, os.O_RDONLY | os.O_DIRECT))


def direct_later():
    """Sets the flag of a pipe, which every kernel lets a program do."""
    fcntl.fcntl(os.pipe()[1], fcntl.F_SETFL, os.O_DIRECT)


attempt("direct", direct)
attempt("direct-later", direct_later)
