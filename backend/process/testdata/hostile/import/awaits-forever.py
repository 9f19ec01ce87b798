# tries: to hang in the first fork that loads it
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "does not answer", and programs run without it
import posix, time
posix.register_at_fork(after_in_child=lambda: posix.getpid() == 3 and time.sleep(100))
