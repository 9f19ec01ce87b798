# tries: to say that it is ready without a snapshot
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "no such file", and programs run without it
import posix
posix.write(4, b'R\0\0\0')
posix._exit(0)
