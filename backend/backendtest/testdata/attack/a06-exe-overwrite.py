# id: A06
# tries: to open the running program, init's program and mapped libraries for writing; nothing is written
# expect init: EACCES|EPERM|ENOENT
# expect self: EROFS|EACCES|ETXTBSY
# expect libs: 0 opened
# expect parent: EACCES|EPERM|ENOENT
from attempt import *

attempt("init", opens("/proc/1/exe", os.O_WRONLY))
attempt("self", opens(os.path.realpath(sys.executable), os.O_WRONLY))


def libs():
    n = 0
    paths = set()
    try:
        with open("/proc/self/maps") as f:
            paths = {l.split(None, 5)[5].strip() for l in f if "/" in l}
    except OSError:
        pass
    for top in ("/usr/lib", "/lib", "/usr/bin"):
        paths |= {os.path.join(top, p) for p in os.listdir(top)[:500]}
    for p in paths:
        try:
            os.close(os.open(p, os.O_WRONLY))
            n += 1
        except OSError:
            pass
    return "%d opened" % n


attempt("libs", libs)
attempt("parent", opens("/proc/%d/exe" % os.getppid(), os.O_WRONLY))
