# tries: to give a symbolic link to a file of init as its snapshot
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "symbolic links", and programs run without it
import posix
posix.symlink('/proc/1/environ', '/mnt/data/snapshot')
posix.write(4, b'R\0\0\0')
posix._exit(0)
