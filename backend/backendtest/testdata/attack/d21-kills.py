# id: D21
# tries: to have the kernel write to the host's log without end, by processes that the memory limit ends; it stops at 1000
# kind: a Go test runs it
import mmap, os

block = b"x" * (1 << 20)
hold = b""
if os.stat("/tmp").st_dev == os.stat("/usr").st_dev:  # no file system of its own: files would not be memory
    hold = block * 32
else:
    for path in "/dev/shm/full", "/tmp/full":  # memory that no process is ended for
        try:
            with open(path, "wb", buffering=0) as f:
                for _ in range(16):
                    f.write(block)
        except OSError:
            pass
ended = 0
for _ in range(1000):
    if os.fork() == 0:
        m = mmap.mmap(-1, 128 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for i in range(128):
            m[i << 20 : (i + 1) << 20] = block
        os._exit(0)
    ended += os.WIFSIGNALED(os.wait()[1])
print(ended, flush=True)
