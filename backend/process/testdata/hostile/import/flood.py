# tries: to flood the channel on which it reports
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "failed", and programs run without it
import posix
for i in range(100): posix.write(4, b'E' * 4096)
