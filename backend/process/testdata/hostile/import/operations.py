# tries: to give a snapshot with many operations that reserve memory
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "cannot allocate memory", and programs run without it
import posix
f = posix.open('/mnt/data/snapshot', posix.O_WRONLY | posix.O_CREAT, 0o600)
posix.write(f, b'snpshot1' + (0).to_bytes(8, 'little') + (1 << 20).to_bytes(8, 'little') + (4000).to_bytes(8, 'little') + b'\2\0\0\0\7\0\0\0' * 200000)
posix.write(4, b'R\0\0\0')
posix._exit(0)
