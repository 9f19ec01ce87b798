# id: A13
# tries: to make device nodes, to open the host's, and to signal other sandboxes by the times of a device that all of them see
# expect mknod-block: EPERM|EACCES
# expect mknod-char: EPERM|EACCES
# expect[L1] mknod-block: EACCES|EPERM
# expect mem: ENOENT
# expect[L1] mem: EACCES|ENOENT
# expect vda: ENOENT
# expect[L1] vda: EACCES|ENOENT
# expect kvm: ENOENT
# expect[L1] kvm: EACCES|ENOENT
# expect fuse: ENOENT
# expect[L1] fuse: EACCES|ENOENT
# expect tun: ENOENT
# expect[L1] tun: EACCES|ENOENT
# expect vsock: ENOENT
# expect[L1] vsock: EACCES|ENOENT
# expect tty: ENOENT
# expect[L1] tty: EACCES|ENOENT|ENXIO
# expect null: ok
# expect urandom: ok
# expect touched: EROFS
# expect[L1] touched: EPERM
from attempt import *
import stat

w = os.environ["WORK"]
attempt("mknod-block", lambda: os.mknod(w + "/b", stat.S_IFBLK | 0o600, os.makedev(254, 0)))
attempt("mknod-char", lambda: os.mknod(w + "/c", stat.S_IFCHR | 0o600, os.makedev(1, 1)))
for name, path in (("mem", "mem"), ("vda", "vda"), ("kvm", "kvm"), ("fuse", "fuse"), ("tun", "net/tun"), ("vsock", "vsock"), ("tty", "tty")):
    attempt(name, opens("/dev/" + path))
attempt("null", opens("/dev/null", os.O_RDWR))
attempt("urandom", reads("/dev/urandom"))
attempt("touched", lambda: os.utime("/dev/full"))
