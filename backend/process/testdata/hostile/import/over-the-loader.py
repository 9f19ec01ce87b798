# tries: to replace the code that loads the snapshot, which has a descriptor of a file that all forks load
# wall: no operation of a snapshot may touch that code
# expect: the snapshot cannot be loaded
import os, posix, struct
def area():
    for line in open('/proc/self/maps'):
        span, rights, *rest = line.split()
        start, end = (int(n, 16) for n in span.split('-'))
        if rights == 'r-xp' and rest == ['00000000', '00:00', '0'] and end - start == 0x4000:
            return start
def write(fd, data):
    if data[:1] == b'R' and os.path.exists('/mnt/data/snapshot'):
        posix.write = really
        with open('/mnt/data/snapshot', 'r+b') as file:
            head = file.read(40)
            number = int.from_bytes(head[24:32], 'little')
            file.seek(24)
            file.write((number + 1).to_bytes(8, 'little'))
            file.seek(2408 + 64 * number)
            file.write(struct.pack('<4I6Q', 3, 5, 0x22, 0, area(), 0x1000, 0, 0, 0, 0))
    return really(fd, data)
really, posix.write = posix.write, write
