# tries: to give an empty snapshot
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "0 bytes", and programs run without it
import posix
f = posix.open('/mnt/data/snapshot', posix.O_WRONLY | posix.O_CREAT, 0o600)
posix.write(f, b'')
posix.write(4, b'R\0\0\0')
posix._exit(0)
