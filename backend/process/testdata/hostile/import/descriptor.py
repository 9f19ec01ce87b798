# tries: to keep a file open. Another file would get its number in the programs that load the snapshot
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "there are open files", and programs run without it
import posix
kept = posix.open('/dev/null', posix.O_RDONLY)
