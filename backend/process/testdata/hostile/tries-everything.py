# tries: to learn all that the kernel tells a process of itself, every system call, and what the walls forbid. It does not try vfork, whose child returns from a function that its parent returns from again
# wall: all walls of a sandbox
# expect: a fork gets the same answers as an executed program
import os, sys, re, ctypes, signal, errno, resource, struct, socket, platform, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
amd = platform.machine() == 'x86_64'
def call(nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return r if r != -1 else -ctypes.get_errno()
def no(e): return errno.errorcode.get(e, e)
def attempt(f, *a, **k):
    try: r = f(*a, **k)
    except OSError as e: return no(e.errno)
    except Exception as e: return type(e).__name__
    if hasattr(r, 'close'): r.close()
    return 'done' if hasattr(r, 'close') else r
def text(name): return open(name, 'rb').read().decode('utf-8', 'replace')

for line in text('/proc/self/status').splitlines():
    if not line.startswith(('Pid:', 'Tgid:', 'NSpid:', 'NStgid:', 'NSpgid:', 'NSsid:', 'Vm', 'Rss', 'HugetlbPages', 'voluntary', 'nonvoluntary', 'Cpus_allowed')): print('status', line)
for n in sorted(os.listdir('/proc/self')):
    if n in ('status', 'stat', 'statm', 'io', 'maps', 'smaps', 'smaps_rollup', 'numa_maps', 'schedstat', 'sched', 'fd', 'fdinfo', 'ns', 'task', 'map_files', 'mountinfo', 'mounts', 'mountstats', 'net', 'mem', 'environ', 'auxv', 'cmdline', 'pagemap', 'uid_map', 'gid_map', 'oom_score', 'arch_status', 'clear_refs', 'syscall', 'wchan', 'stack', 'timens_offsets', 'ksm_stat', 'root', 'cwd', 'exe', 'attr', 'autogroup'): continue
    print('proc', n, attempt(text, '/proc/self/' + n))
for n in 'root', 'cwd', 'exe': print('link', n, attempt(os.readlink, '/proc/self/' + n), attempt(os.listdir, '/proc/self/' + n) if n != 'exe' else '')
for n in sorted(os.listdir('/proc/self/attr')): print('attr', n, attempt(text, '/proc/self/attr/' + n))
print('autogroup', re.sub(r'-\d+', '', str(attempt(text, '/proc/self/autogroup'))))
print('keys', attempt(text, '/proc/keys'))
aux = open('/proc/self/auxv', 'rb').read()
aux = dict(struct.unpack('QQ', aux[i:i + 16]) for i in range(0, len(aux), 16))
print('auxv', sorted(aux), [(k, aux.get(k)) for k in (4, 5, 6, 8, 17, 23, 26, 29, 51)])
print('auxv ids', [aux.get(k) for k in (11, 12, 13, 14)])
print('environ', text('/proc/self/environ').split('\0'))
for line in text('/proc/self/sched').splitlines():
    if line.startswith(('policy', 'prio', 'uclamp', 'ext')): print('sched', line)
f = text('/proc/self/stat').rsplit(')', 1)[1].split()
print('stat', 'tty', f[4:6], 'exit signal', f[35], 'nice', f[15:17], 'threads', f[17], 'rt', f[37:39], 'children cpu', f[13:15])
for fd in sorted(os.listdir('/proc/self/fd'), key=int):
    try: print('fd', fd, os.readlink('/proc/self/fd/' + fd).split(':')[0], re.findall(r'flags:\s*\d+', text('/proc/self/fdinfo/' + fd)), os.get_inheritable(int(fd)))
    except OSError as e: print('fd', fd, no(e.errno))
maps = [l.split(None, 5) for l in text('/proc/self/maps').splitlines()]
print('shared', [m[1:4] + m[5:] for m in maps if m[1][3] == 's'])
print('files', sorted({m[5] for m in maps if len(m) > 5 and not re.search('ctypes|ffi|socket|heap|stack|vdso|vvar|vsyscall|python3|select|resource|array|struct|math|lib-dynload', m[5])}))
print('writable and executable', [m for m in maps if 'wx' in m[1]])
for n in sorted(os.listdir('/proc/self/ns')): print('ns', n, attempt(lambda: os.readlink('/proc/self/ns/' + n).split(':')[0]))
for o in 2, 3, 7, 19, 21, 25, 27, 30, 34, 37, 39, 42, 63, 66, 68:
    buf = ctypes.c_long(0)
    r = libc.prctl(ctypes.c_int(o), ctypes.byref(buf) if o in (2, 19, 25, 37) else ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0))
    print('prctl', o, r, buf.value)
print('bounding', [c for c in range(64) if libc.prctl(23, ctypes.c_long(c), 0, 0, 0) == 1], 'ambient', [c for c in range(64) if libc.prctl(47, ctypes.c_long(1), ctypes.c_long(c), ctypes.c_long(0), ctypes.c_long(0)) == 1])
print('speculation', [libc.prctl(52, ctypes.c_long(i), 0, 0, 0) for i in range(3)])
print('persona', libc.personality(ctypes.c_ulong(0xffffffff)), 'nice', os.nice(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), os.sched_getparam(0), 'io', call(252 if amd else 31, 1, 0), call(252 if amd else 31, 2, 0))
print('ids', os.getresuid(), os.getresgid(), os.getgroups(), os.getsid(0) == os.getpid() == os.getpgrp(), os.getppid(), oct(os.umask(0o22)), os.get_terminal_size.__name__)
print('map', text('/proc/self/uid_map').split()[0::2], text('/proc/self/gid_map').split()[0::2])
for s in range(1, 65):
    buf = (ctypes.c_ulong * 4)()
    r = call(13 if amd else 134, s, 0, buf, 8)
    print('action', s, r, buf[0] if buf[0] < 2 else 'handler', hex(buf[1]), 'mask', buf[3])
pending = ctypes.c_ulong(0)
call(127 if amd else 136, ctypes.byref(pending), 8)
print('pending', pending.value, 'mask', sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), 'timers', [signal.getitimer(i) for i in range(3)], signal.alarm(0))
print('limits', [(i, attempt(resource.getrlimit, i)) for i in range(16)])
c = resource.getrusage(resource.RUSAGE_CHILDREN)
print('children', c.ru_utime, c.ru_stime, c.ru_minflt, c.ru_nsignals, resource.getrusage(resource.RUSAGE_SELF).ru_utime < 2)
for d in '/', '/mnt/data', '/tmp', '/dev/shm', '/dev', '/run', '/run/program', '/etc', '/proc/self/root', '/mnt', '/usr', '/proc/self/cwd/..':
    print('place', d, attempt(lambda: sorted(os.listdir(d)) if d not in ('/usr', '/etc') else len(os.listdir(d))), attempt(os.open, d + '/.new', os.O_CREAT | os.O_WRONLY, 0o600) if d not in ('/mnt/data', '/tmp', '/dev/shm', '/proc/self/cwd/..') else '')
print('mounts', [re.sub(r'uid=\d+|gid=\d+|\d+:\d+', '', l.split(' ', 3)[3]) for l in text('/proc/self/mountinfo').splitlines()])
print('pids', [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()], 'reached', [p for p in range(1, 2000) if p != os.getpid() and attempt(os.kill, p, 0) != 'ESRCH'])
for n in sorted(set(os.listdir('/proc/self')) - {'task'}):
    print('init', n, attempt(open, '/proc/1/' + n, 'rb') if n not in ('ns', 'fd', 'fdinfo', 'net', 'attr', 'map_files') else attempt(os.listdir, '/proc/1/' + n), end='; ')
print()
for n in 'exe', 'root', 'cwd': print('of init', n, attempt(os.readlink, '/proc/1/' + n))
for path, mode in ('/proc/self/exe', 'r+b'), ('/proc/self/exe', 'rb'), ('/proc/self/mem', 'r+b'), ('/proc/self/oom_score_adj', 'w'), ('/proc/self/uid_map', 'w'), ('/proc/self/setgroups', 'w'), ('/proc/self/clear_refs', 'w'), ('/proc/sysrq-trigger', 'w'), ('/proc/sys/kernel/hostname', 'w'), ('/proc/sys/user/max_user_namespaces', 'w'), ('/proc/self/timerslack_ns', 'w'), ('/proc/self/attr/exec', 'w'), ('/proc/kcore', 'rb'), ('/proc/kmsg', 'rb'), ('/proc/kallsyms', 'rb'), ('/proc/self/pagemap', 'rb'), ('/dev/mem', 'rb'), ('/dev/ptmx', 'r+b'), ('/dev/tty', 'r+b'), ('/dev/null', 'r+b'), ('/dev/fuse', 'r+b'):
    print('open', path, mode, attempt(open, path, mode))
print('map_files', attempt(os.listdir, '/proc/self/map_files') if not isinstance(attempt(os.listdir, '/proc/self/map_files'), list) else [attempt(open, '/proc/self/map_files/' + n, 'rb') for n in os.listdir('/proc/self/map_files')][:3])
exe = os.open('/proc/self/exe', os.O_PATH)
for p in '..', '../..', '../../..', '.': print('from exe', p, attempt(os.open, p, os.O_RDONLY, dir_fd=exe), attempt(os.listdir, '/proc/self/fd/%d/%s' % (exe, p)))
print('exe is', os.fstat(exe).st_ino == os.stat(sys.executable).st_ino, attempt(os.fchmod, exe, 0o777), attempt(os.link, '/proc/self/exe', '/tmp/exe', follow_symlinks=True))
open('/tmp/f', 'w').close()
for what, f in {'link': lambda: os.link('/tmp/f', '/mnt/data/f'), 'hard': lambda: os.link('/usr/bin/env', '/tmp/env'), 'rename': lambda: os.rename('/tmp/f', '/tmp/g'), 'node': lambda: os.mknod('/tmp/n', 0o020666, os.makedev(1, 3)), 'block': lambda: os.mknod('/tmp/n', 0o060666, os.makedev(8, 0)), 'fifo': lambda: os.mkfifo('/tmp/q'), 'mkdir': lambda: os.mkdir('/run/program/x'), 'truncate': lambda: os.truncate('/etc/passwd', 0), 'chmod': lambda: os.chmod('/run/program', 0o777), 'chown': lambda: os.chown('/tmp/g', 0, 0), 'unlink': lambda: os.unlink('/run/program/main.py'), 'setuid': lambda: os.setuid(0), 'setgid': lambda: os.setgid(0), 'setgroups': lambda: os.setgroups([0]), 'chroot': lambda: os.chroot('/tmp'), 'exec on shm': lambda: (open('/dev/shm/x', 'w').write('#!/bin/sh\n'), os.chmod('/dev/shm/x', 0o755), os.posix_spawn('/dev/shm/x', ['x'], {})) and 0, 'nice': lambda: os.setpriority(os.PRIO_PROCESS, 0, -5), 'fifo policy': lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)), 'raise': lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20, 1 << 20)), 'raise tasks': lambda: resource.setrlimit(resource.RLIMIT_NPROC, (1 << 20, 1 << 20))}.items():
    print('try', what, attempt(f))
for what, f in {'vsock': lambda: socket.socket(40, 1), 'packet': lambda: socket.socket(17, 3), 'raw': lambda: socket.socket(2, 3, 1), 'alg': lambda: socket.socket(38, 5), 'netlink': lambda: socket.socket(16, 3, 0), 'audit': lambda: socket.socket(16, 3, 9), 'tcp': lambda: socket.create_connection(('1.1.1.1', 80), 1), 'self': lambda: socket.create_server(('127.0.0.1', 0)), 'abstract': lambda: socket.socket(1).bind('\0name')}.items():
    print('socket', what, attempt(f))
print('interfaces', [l.split(':')[0].strip() for l in text('/proc/self/net/dev').split('\n') if ':' in l], text('/proc/self/net/tcp').count('\n'), text('/proc/self/net/unix').count('\n'))
for n in sorted(os.listdir('/proc/self/ns')):
    fd = os.open('/proc/self/ns/' + n, os.O_RDONLY)
    print('setns', n, no(-call(308 if amd else 268, fd, 0)))
    os.close(fd)
buf = ctypes.create_string_buffer(64)
vec = (ctypes.c_ulong * 2)(ctypes.addressof(buf), 8)
child = os.fork()
if child == 0: time.sleep(30); os._exit(0)
print('ptrace', [no(-call(101 if amd else 117, r, p, 0, 0)) for r in (0, 16, 0x4206) for p in (1, child)], 'vm', [no(-call(n, p, vec, 1, vec, 1, 0)) for n in ((310, 311) if amd else (270, 271)) for p in (1, 2, child)])
pidfd = [call(434, p, 0) for p in (1, child)]
print('pidfd', [p > 0 or no(-p) for p in pidfd], [no(-call(438, p, f, 0)) for p in pidfd for f in (0, 3)], attempt(open, '/proc/%d/mem' % child, 'rb'), attempt(os.listdir, '/proc/%d/fd' % child))
os.kill(child, 9); os.wait()
for p in pidfd: p > 0 and os.close(p)
def tried(nr, args):
    pid = os.fork()
    if pid == 0:
        try:
            for fd in 0, 1, 2, 3:
                try: os.close(fd)
                except OSError: pass
            signal.setitimer(signal.ITIMER_REAL, .2); signal.signal(signal.SIGALRM, signal.SIG_DFL)
            r = call(nr, *args)
            os._exit(-r if -200 < r < 0 else 0)
        finally: os._exit(255)
    return os.waitpid(pid, 0)[1]
for args in (-1,) * 6, (0,) * 6, (0, 0, 1 << 40, 7, 1, 2):
    print('calls', args, [(n, tried(n, args)) for n in list(range(480)) + list(range(512, 548)) if n != (58 if amd else -1)])
kids = []
try:
    while len(kids) < 5000:
        p = os.fork()
        if p == 0: signal.pause()
        kids.append(p)
except OSError as e: print('tasks', len(kids), no(e.errno))
for p in kids: os.kill(p, 9)
for p in kids: os.waitpid(p, 0)
print('again by exe', os.spawnv(os.P_WAIT, '/proc/self/exe', ['python3', '-c', 'import sys; sys.exit(7)']))
