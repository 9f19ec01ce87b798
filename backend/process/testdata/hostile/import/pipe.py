# tries: to give a FIFO as its snapshot, on which a reader would wait
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "invalid argument", and programs run without it
import posix
posix.mkfifo('/mnt/data/snapshot')
posix.write(4, b'R\0\0\0')
posix._exit(0)
