# tries: to end by a signal
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "has ended", and programs run without it
import posix
posix.kill(posix.getpid(), 9)
