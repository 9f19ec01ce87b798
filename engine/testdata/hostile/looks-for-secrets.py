# tries: to find what another session left, and the files and sockets of the server, at the paths that the test inserts
# wall: namespaces of its own for pids, mounts, network and IPC, a tmpfs of its own, no key rings, and cleared sandboxes
# expect: it prints an empty list, except in the session that left the secrets
import ctypes, os, socket
secret = 'secret-' + 'of-another'
found = []
def note(what, f):
    try: r = f()
    except OSError: return
    if r: found.append((what, r))
def text(name):
    with open(name, 'rb') as f: return f.read().decode('latin-1')
for top in '/mnt', '/tmp', '/dev/shm', '/run', '/var', '/home', '/root', '/opt':
    for d, dirs, names in os.walk(top):
        found += [('file', d + '/' + n) for n in names + dirs if secret in n or n.endswith('.sock')]
me = {1, os.getpid(), os.getppid()}
for p in range(1, 70000):
    note('process', lambda: os.kill(p, 0) is None and p not in me and p)
for p in [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]:
    for n in 'environ', 'cmdline', 'maps', 'comm': note(n, lambda: secret in text('/proc/%s/%s' % (p, n)))
    for n in 'root', 'cwd': note(n, lambda: os.listdir('/proc/%s/%s/' % (p, n)))
    note('memory', lambda: open('/proc/%s/mem' % p, 'r+b'))
note('environment', lambda: [v for v in os.environ.values() if secret in v])
def connect(family, address):
    s = socket.socket(family); s.settimeout(1); s.connect(address); return True
note('abstract', lambda: connect(socket.AF_UNIX, '\0' + secret))
note('loopback', lambda: connect(socket.AF_INET, ('127.0.0.1', 5177)))
note('port', lambda: socket.create_server(('127.0.0.1', 5177)).close())
for n in 'tcp', 'tcp6', 'udp': note(n, lambda: [l for l in text('/proc/net/' + n).splitlines()[1:] if ':1439' in l])
note('unix', lambda: [l for l in text('/proc/net/unix').splitlines()[1:] if 'secret' in l or 'sandboxmcp' in l])
libc = ctypes.CDLL(None, use_errno=True)
note('ipc', lambda: libc.shmget(0x5ec3e7, 4096, 0) >= 0)
note('ipc list', lambda: text('/proc/sysvipc/shm').splitlines()[1:])
note('key', lambda: libc.syscall(249, b'user', secret.encode(), 0, 0) > 0)
note('keys', lambda: secret in text('/proc/keys'))
for d in STATE:
    note('state', lambda: os.listdir(d))
    note('state file', lambda: open(d + '/sandboxmcp.db', 'rb'))
    for n in os.listdir(d) if os.path.isdir(d) else []: note('socket of the server', lambda: connect(socket.AF_UNIX, d + '/' + n))
print(found)
