# id: A15
# tries: the classic way out of a chroot
# expect chroot: EPERM
# expect raw: EPERM
from attempt import *

attempt("chroot", lambda: os.chroot(os.environ["WORK"]))
attempt("raw", lambda: call("chroot", b"."))
