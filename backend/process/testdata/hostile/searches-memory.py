# tries: to find in its own memory what another program was told
# wall: every fork of a zygote gets its own pages, and what a program is told is never in the zygote
# expect: it finds as much of it as of a text that never was
import os
needle, found, size = b'tenant-one-' + b'secret'[:3] + b'ret', [], 0
with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as mem:
    for line in maps.read().splitlines():
        span, rights = line.split()[:2]
        if 'r' in rights and '[v' not in line:
            a, b = (int(x, 16) for x in span.split('-'))
            try:
                mem.seek(a)
                data = mem.read(b - a)
            except OSError: continue
            size += len(data)
            if data.count(needle) > 0: found.append(line)
            del data
print(size > 1000000, 'TOKEN' in os.environ, len(found))
