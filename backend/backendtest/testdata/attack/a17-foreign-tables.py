# id: A17 A18
# tries: the i386 and x32 system call tables of amd64, which a filter on numbers alone lets pass
# expect int80: killed SIGSYS
# expect[arm64] int80: not this machine
# expect x32: ENOSYS
# expect[arm64] x32: not this machine
# bare int80: 20
# bare x32: ENOSYS|ok
from attempt import *


def int80():
    if ARM:
        return "not this machine"
    # mov eax, 20 (getpid of i386, unshare's place does not matter); int 0x80; ret
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
    m = anonymous(4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    m.write(code)
    f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
    r = f()
    return "20" if r == os.getpid() else "other %d" % r


attempt("int80", in_child(int80))
attempt("x32", (lambda: "not this machine") if ARM else in_child(lambda: call(0x40000000 | 39)))
