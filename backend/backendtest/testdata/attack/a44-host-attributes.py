# id: A44
# tries: to change the mode, times, owner and extended attributes of a file of the host, and of one that it may read, and to open a file of the host neither to read nor to write it, which Landlock does not keep it from
# expect mode: hidden
# expect[L1] mode: unchanged|hidden
# expect[L1,root] mode: EPERM|hidden
# expect set-id: hidden
# expect[L1] set-id: unchanged|hidden
# expect[L1,root] set-id: EPERM|hidden
# expect times: hidden
# expect[L1] times: unchanged|hidden
# expect now: hidden
# expect[L1] now: EPERM|hidden
# expect owner: hidden
# expect[L1] owner: EPERM|hidden
# expect attribute: hidden
# expect[L1] attribute: ENOTSUP|EOPNOTSUPP|hidden
# expect list: hidden
# expect[L1] list: ENOTSUP|EOPNOTSUPP|hidden
# expect neither: hidden
# expect[L1] neither: EINVAL|hidden
# expect readable-mode: unchanged
# expect readable-times: unchanged
# expect touch: made
import os, pathlib, tempfile
from attempt import attempt, canaries


def state(path):
    st = os.stat(path)
    return st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns, st.st_ctime_ns


def changes(change):
    """Whether a change of a file outside that succeeds has an effect, on the first of them that shows itself."""
    def f():
        for path in canaries():
            if os.path.exists(path):
                before = state(path)
                change(path)
                return "unchanged" if state(path) == before else "changed"
        return "hidden"
    return f


attempt("mode", changes(lambda p: os.chmod(p, 0o666)))
attempt("set-id", changes(lambda p: os.chmod(p, 0o6755)))
attempt("times", changes(lambda p: os.utime(p, (5, 5))))
attempt("now", changes(lambda p: os.utime(p)))
attempt("owner", changes(lambda p: os.chown(p, -1, -1)))
attempt("attribute", changes(lambda p: os.setxattr(p, "user.a", b"b")))
attempt("list", changes(lambda p: os.listxattr(p)))


def neither():
    for path in canaries():
        if os.path.exists(path):
            os.open(path, 3)  # the descriptor could take a lease, or control a device
            return "opened"
    return "hidden"


attempt("neither", neither)


def readable(change):
    """The same with a descriptor of a file that every program may read."""
    def f():
        before = state("/etc/passwd")
        fd = os.open("/etc/passwd", os.O_RDONLY)
        try:
            change(fd)
        except OSError:
            pass
        finally:
            os.close(fd)
        return "unchanged" if state("/etc/passwd") == before else "changed"
    return f


attempt("readable-mode", readable(lambda fd: os.fchmod(fd, 0o644)))
attempt("readable-times", readable(lambda fd: os.utime(fd, (5, 5))))


def touch():
    new = pathlib.Path(tempfile.mkdtemp()) / "new"
    new.touch()  # first tries to set the times of a file that is not there
    new.touch()
    return "made" if new.exists() else "missing"


attempt("touch", touch)
