# id: A08
# tries: to take hold of init and of the own parent
# expect attach: EPERM
# expect seize: EPERM
# expect traceme: EPERM
# expect read: EPERM
# expect write: EPERM
# expect getfd: EPERM
# expect kcmp: EPERM
# bare traceme: ok
from attempt import *

attempt("attach", lambda: call("ptrace", 16, os.getppid(), 0, 0))
attempt("seize", lambda: call("ptrace", 0x4206, os.getppid(), 0, 0))
attempt("traceme", in_child(lambda: call("ptrace", 0, 0, 0, 0)))
attempt("read", lambda: call("process_vm_readv", os.getppid(), 0, 0, 0, 0, 0))
attempt("write", lambda: call("process_vm_writev", os.getppid(), 0, 0, 0, 0, 0))
attempt("getfd", lambda: call("pidfd_getfd", 0, 0, 0))
attempt("kcmp", lambda: call("kcmp", os.getpid(), os.getppid(), 2, 0, 0))
