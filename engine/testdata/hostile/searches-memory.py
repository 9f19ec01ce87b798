# tries: to find in its own memory what another program was told. It knows the beginning of that text, and nothing of what follows
# wall: every fork of a zygote gets its own pages, and what a program is told is never in the zygote
# expect: it prints "0 [] '' []": no match, variable, input or file
import os, sys
found = 0
with open('/proc/self/maps') as f: maps = f.read().splitlines()
with open('/proc/self/mem', 'rb', 0) as mem:
    for l in maps:
        span, rights = l.split()[:2]
        if rights[:2] != 'rw': continue
        a, b = (int(x, 16) for x in span.split('-'))
        try: mem.seek(a); data = mem.read(b - a)
        except (OSError, OverflowError, ValueError): continue
        at = data.find(b'told-of-')
        while at >= 0:
            if data[at + 8:at + 10] == b'an': found += 1
            at = data.find(b'told-of-', at + 1)
        del data
print(found, sorted(k for k in os.environ if k.startswith('TOLD')), repr(sys.stdin.read()), os.listdir('/mnt/data'))
