# tries: to give a snapshot that is larger than its limit
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "want 1 to", and programs run without it
import posix
f = posix.open('/mnt/data/snapshot', posix.O_WRONLY | posix.O_CREAT, 0o600)
posix.ftruncate(f, 300 << 20)
posix.write(4, b'R\0\0\0')
posix._exit(0)
