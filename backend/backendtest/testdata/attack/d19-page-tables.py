# id: D19
# tries: to hold more memory than it may in page tables, by reading one page in 2 MiB; it stops at 200 MiB of them
# kind: a Go test runs it
import mmap, time

goal, step, chunk, keep, tables = 200 << 20, 2 << 20, 4 << 30, [], 0
while tables < goal:
    m = mmap.mmap(-1, chunk, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
    m.madvise(15)  # MADV_NOHUGEPAGE
    keep.append(m)
    for at in range(0, chunk, step):
        m[at]
    tables += chunk // step * 4096
print(tables >> 20, flush=True)
time.sleep(2)
