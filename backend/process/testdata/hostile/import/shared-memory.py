# tries: to keep shared memory, which a snapshot cannot hold. Where there are no control groups, it is refused anyway
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "a fork failed", and programs run without it
import mmap
kept = mmap.mmap(-1, 4096)
