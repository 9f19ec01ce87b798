# tries: to leave a secret in every place that a session has: files, environment, memory, processes, keys, sockets
# wall: none; the program prepares what looks-for-secrets.py looks for
# expect: it prints "True True", so that there is something to find
import ctypes, mmap, os, socket, subprocess, sys
secret = 'secret-' + 'of-another'
for d in '/mnt/data', '/tmp', '/dev/shm':
    with open(d + '/' + secret, 'w') as f: f.write(secret)
os.environ['HELD'] = secret
try: shared = mmap.mmap(-1, 4096); shared.write(secret.encode())
except OSError: pass  # where nothing counts such memory there is none
child = subprocess.Popen(['sleep', '600'], env={'HELD': secret})
libc = ctypes.CDLL(None, use_errno=True)
ipc = libc.shmget(0x5ec3e7, 4096, 0o1666)
key = libc.syscall(248, b'user', secret.encode(), secret.encode(), len(secret), ctypes.c_int(-4))
a = socket.socket(socket.AF_UNIX); a.bind('\0' + secret); a.listen()
p = socket.socket(socket.AF_UNIX); p.bind('/tmp/held.sock'); p.listen()
s = socket.create_server(('127.0.0.1', 5177))
c = socket.create_connection(('127.0.0.1', 5177)); s.accept()[0].close(); c.close()
print(os.path.exists('/tmp/' + secret), len(open('/proc/net/tcp').readlines()) > 1)
