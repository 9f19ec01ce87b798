# id: A11
# tries: to open the kernel's own switches for writing; nothing is written
# expect core_pattern: refused
# expect modprobe: refused
# expect binfmt: refused
# expect sysrq: refused
# expect uid_map: refused
# expect oom: refused
# expect kcore: refused
# expect kmsg: refused
# expect uevent: refused
from attempt import *


def refused(path, flags=os.O_WRONLY):
    def f():
        try:
            os.close(os.open(path, flags))
        except OSError as e:
            return "refused" if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT) else code(e)
        return "ok"
    return f


attempt("core_pattern", refused("/proc/sys/kernel/core_pattern"))
attempt("modprobe", refused("/proc/sys/kernel/modprobe"))
attempt("binfmt", refused("/proc/sys/fs/binfmt_misc/register"))
attempt("sysrq", refused("/proc/sysrq-trigger"))
attempt("uid_map", refused("/proc/self/uid_map"))
attempt("oom", refused("/proc/self/oom_score_adj"))
attempt("kcore", refused("/proc/kcore", os.O_RDONLY))
attempt("kmsg", refused("/proc/kmsg", os.O_RDONLY))
attempt("uevent", refused("/sys/kernel/uevent_helper"))
