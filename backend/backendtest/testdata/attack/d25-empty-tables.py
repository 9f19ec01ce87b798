# id: D25
# tries: to make its end last, by page tables that name zero pages alone, and so take much longer to visit than the memory that they hold; it stops at 400 MiB of them
# kind: a Go test runs it
import mmap, os, time

goal, chunk, huge, keep = 400 << 20, 4 << 30, 2 << 20, []
if os.environ.get("KIND") == "tasks":
    goal = 32 << 20
    for _ in range(40):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
for _ in range(goal * 512 // chunk):
    m = mmap.mmap(-1, chunk, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
    keep.append(m)
    for at in range(0, chunk, huge):
        m[at]
        m.madvise(mmap.MADV_DONTNEED, at, mmap.PAGESIZE)  # divides a huge zero page
print("up", flush=True)
time.sleep(60)
