# id: D03
# tries: to fill every writable place, by writing, by reserving, by files without a name
# expect work: ENOSPC within the quota
# expect[L1] work: left out
# expect reserve: ENOSPC within the quota
# expect[L1] reserve: left out
# expect nameless: ENOSPC within the quota
# expect[L1] nameless: left out
# expect inodes: ENOSPC within the quota
# expect[L1] inodes: left out
# expect tmp: ENOSPC within the quota
# expect[L1] tmp: left out
# expect shm: ENOSPC within the quota
# expect[L1] shm: left out
# expect alive: ok
from attempt import *

w, tmp = os.environ["WORK"], os.environ["TMPDIR"]
plain = not w.startswith("/mnt/data")
most = {w: int(os.environ["WORKBYTES"]), tmp: int(os.environ["TEMPBYTES"]), "/dev/shm": int(os.environ["TEMPBYTES"])}


def fill(path, how="write", nameless=False):
    def f():
        if plain:
            return "left out"
        n, fd = 0, os.open(path + "/fill", os.O_RDWR | os.O_CREAT)
        if nameless:
            os.unlink(path + "/fill")
        try:
            while n < most[path] * 2 + (8 << 20):
                if how == "write":
                    n += os.write(fd, b"x" * (256 << 10))
                else:
                    os.posix_fallocate(fd, n, 256 << 10)
                    n += 256 << 10
            return "no limit"
        except OSError as e:
            return "%s %s the quota" % (code(e), "within" if n <= most[path] else "beyond")
        finally:
            os.close(fd)
            if not nameless:
                os.unlink(path + "/fill")
    return f


attempt("work", fill(w))
attempt("reserve", fill(w, how="reserve"))
attempt("nameless", fill(w, nameless=True))


def inodes():
    if plain:
        return "left out"
    limit, n = int(os.environ["WORKINODES"]), 0
    try:
        while n < limit * 2:
            os.close(os.open("%s/i%d" % (w, n), os.O_CREAT | os.O_WRONLY))
            n += 1
        return "no limit"
    except OSError as e:
        return "%s %s the quota" % (code(e), "within" if n <= limit else "beyond")


attempt("inodes", inodes)
attempt("tmp", fill(tmp))
attempt("shm", fill("/dev/shm"))
attempt("alive", lambda: None)
