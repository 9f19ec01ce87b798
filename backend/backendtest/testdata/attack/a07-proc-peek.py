# id: A07
# tries: to read other processes through /proc
# expect seen: own only
# expect[L1] seen: EACCES
# expect init-environ: EACCES|EPERM|ENOENT
# expect[L1] init-environ: EACCES
# expect init-mem: EACCES|EPERM|ENOENT
# expect[L1] init-mem: EACCES
# expect init-fd: EACCES|EPERM|ENOENT
# expect[L1] init-fd: EACCES
# expect init-root: EACCES|EPERM|ENOENT
# expect[L1] init-root: EACCES
# expect init-cwd: EACCES|EPERM|ENOENT
# expect[L1] init-cwd: EACCES
from attempt import *


def seen():
    pids = {int(p) for p in os.listdir("/proc") if p.isdigit()}
    return "own only" if pids <= {1, os.getpid()} else sorted(pids)


attempt("seen", seen)
attempt("init-environ", reads("/proc/1/environ"))
attempt("init-mem", opens("/proc/1/mem", os.O_RDWR))
attempt("init-fd", lambda: os.listdir("/proc/1/fd") and None)
attempt("init-root", lambda: os.listdir("/proc/1/root/") and None)
attempt("init-cwd", lambda: os.listdir("/proc/1/cwd/") and None)
