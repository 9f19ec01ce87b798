# id: A01
# tries: to read what belongs to the host
# expect shadow: ENOENT
# expect[L1] shadow: EACCES
# expect ssh: ENOENT|EACCES
# expect[L1] ssh: EACCES
# expect home: ENOENT
# expect[L1] home: EACCES
# expect etc: ok 0
# expect[L1] etc: EACCES
# expect init-root: ENOENT|EACCES|EPERM
# expect[L1] init-root: EACCES
# expect canaries: 0 read
# expect cmdline: ok
# expect[L1] cmdline: EACCES
# expect sys: ENOENT
# expect[L1] sys: EACCES
from attempt import *

attempt("shadow", reads("/etc/shadow"))
attempt("ssh", lambda: os.listdir("/root/.ssh") and None)
attempt("home", lambda: os.listdir("/home") and None)
attempt("etc", lambda: "ok %d" % len([f for f in os.listdir("/etc") if "shadow" in f or "ssh" in f or f in ("fstab", "crontab", "machine-id")]))
attempt("init-root", reads("/proc/1/root/etc/shadow"))


def count():
    n = 0
    for p in canaries():
        for form in (p, "//" + p, "/proc/self/root" + p, "/proc/1/root" + p, "/proc/self/cwd/../../../../../.." + p, "../../../../../../../.." + p):
            try:
                with open(form) as f:
                    n += bool(f.read())
            except OSError:
                pass
    return "%d read" % n


attempt("canaries", count)
attempt("cmdline", reads("/proc/cmdline"))
attempt("sys", lambda: os.listdir("/sys") and None)
