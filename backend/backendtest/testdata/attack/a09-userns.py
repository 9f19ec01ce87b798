# id: A09
# tries: to get a namespace of its own, where it would be root
# expect unshare-user: EPERM
# expect unshare-net: EPERM
# expect unshare-zero: EPERM
# expect clone-user: EPERM
# expect clone-parent: EPERM
# expect clone3: ENOSYS
# expect setns: EPERM
# bare unshare-user: ok
# bare unshare-zero: ok
# bare clone3: EINVAL|EFAULT
from attempt import *

attempt("unshare-user", in_child(lambda: call("unshare", 0x10000000)))
attempt("unshare-net", in_child(lambda: call("unshare", 0x40000000)))
attempt("unshare-zero", in_child(lambda: call("unshare", 0)))


def clone(flags):
    pid = libc.syscall(ctypes.c_long(NR["clone"][ARM]), ctypes.c_ulong(flags | 17), None, None, None, None)
    if pid == 0:
        os._exit(0)
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    os.waitpid(pid, 0)


attempt("clone-user", lambda: clone(0x10000000))
attempt("clone-parent", in_child(lambda: clone(0x8000)))
attempt("clone3", lambda: call("clone3", 0, 0))
attempt("setns", lambda: call("setns", 0, 0))
