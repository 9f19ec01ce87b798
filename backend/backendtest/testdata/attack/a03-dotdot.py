# id: A03
# tries: to climb out of the working directory
# expect hostname: sandbox
# expect[L1] hostname: EACCES
# expect canary: 0 read
# expect listing: ok
# expect[L1] listing: EACCES
# expect fchdir: not the host
# expect[L1] fchdir: EACCES
from attempt import *

os.chdir(os.environ["WORK"])
attempt("hostname", lambda: open("../" * 20 + "etc/hostname").read().strip())


def climb():
    n = 0
    for p in canaries():
        for depth in range(12):
            try:
                n += bool(open("../" * depth + p.lstrip("/")).read())
            except OSError:
                pass
    return "%d read" % n


attempt("canary", climb)
attempt("listing", lambda: os.listdir("..") and None)


def again():
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    os.fchdir(fd)
    os.chdir("../../../..")
    return "the host" if os.path.exists("home") or os.path.exists("root") else "not the host"


attempt("fchdir", again)
