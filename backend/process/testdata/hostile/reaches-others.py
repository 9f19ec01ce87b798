# tries: to find and reach another program, and the zygote, by files, sockets, signals and descriptors
# wall: namespaces of its own for pids, mounts, network and IPC, and no inherited descriptors
# expect: it finds process 1, its own init, alone
import os, socket
print(os.getpid(), hash('x'))
found = [p for p in '/dev/shm/found /tmp/found /mnt/data/found'.split() if os.path.exists(p)]
for address, family in ('\0resident', 1), (('127.0.0.1', 4711), 2):
    try: socket.socket(family, 1).connect(address); found.append(address)
    except OSError: pass
for p in range(1, 40000):
    if p == os.getpid(): continue
    try: os.kill(p, 0); found.append(p)
    except ProcessLookupError: pass
    except OSError as e: found.append((p, e.errno))
found += [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]
for n in 'unix', 'tcp', 'netlink': found += [l for l in open('/proc/self/net/' + n) if 'resident' in l or ':1267' in l]
for where in 'fd', 'map_files':
    try: found += [t for t in (os.readlink('/proc/self/%s/%s' % (where, f)) for f in os.listdir('/proc/self/' + where)) if 'pipe' in t and where == 'map_files' or 'socket' in t or 'pidfd' in t or 'ns' in t.split(':')[0]]
    except OSError: pass
print(found)
