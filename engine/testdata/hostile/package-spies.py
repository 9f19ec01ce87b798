# tries: a package that looks for everything outside of its sandbox while it is imported, tries to enter it, and leaves a process behind
# wall: packages are imported in a sandbox of their own, without rights, which ends with the import
# expect: "found" is empty, and no process lives on
import ctypes, os, signal, subprocess
at, found = (os.readlink('/proc/self/ns/pid'), os.stat('/dev/shm').st_ctime_ns), []
libc = ctypes.CDLL(None, use_errno=True)
def attempt(what, do):
    try:
        got = do()
    except Exception as error:
        return
    if got:
        found.append((what, str(got)[:300]))
mine = {n: os.readlink('/proc/self/ns/' + n) for n in os.listdir('/proc/self/ns')}
def other(path):
    if os.readlink(path) != mine[os.path.basename(path)]:
        return os.readlink(path)
def enter(path):
    if other(path):
        return libc.setns(os.open(path, os.O_RDONLY), 0) == 0
def environment(p):
    text = open(p + '/environ').read()
    return 'canary' in text and text
ours, theirs = os.pipe()
if os.fork() == 0:  # it may enter what it finds
    for p in os.listdir('/proc'):
        if p.isdigit():
            for place in 'mnt/data', 'tmp', 'run/program':
                attempt('files', lambda: [f for f in os.listdir('/proc/%s/root/%s' % (p, place)) if 'canary' in f])
            for n in mine:
                attempt('namespace', lambda: other('/proc/%s/ns/%s' % (p, n)))
                attempt('setns', lambda: enter('/proc/%s/ns/%s' % (p, n)))
            attempt('environ', lambda: environment('/proc/' + p))
            if int(p) not in (os.getpid(), os.getppid()):
                attempt('mem', lambda: open('/proc/%s/mem' % p, 'r+b'))
                attempt('ptrace', lambda: libc.ptrace(16, int(p), 0, 0) == 0)
                attempt('kill', lambda: os.kill(int(p), 0) or int(p) not in (1, 2, 3, 4, 5))
    attempt('capability', lambda: int([l for l in open('/proc/self/status') if l.startswith('CapEff')][0].split()[1], 16))
    attempt('mount', lambda: libc.mount(b'none', b'/tmp', b'tmpfs', 0, 0) == 0)
    attempt('unshare', lambda: libc.unshare(0x10000000) == 0)
    os.write(theirs, repr(found).encode()[:4000])
    os._exit(0)
os.close(theirs)
found = os.read(ours, 4096).decode()
os.close(ours)
os.wait()
if os.fork() == 0:
    libc.prctl(15, b'canary-stays', 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    while True:
        signal.pause()
