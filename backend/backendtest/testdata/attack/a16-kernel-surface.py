# id: A16 A21 A22
# tries: the kernel's large and young interfaces, and keys
# expect io_uring: ENOSYS
# expect io_uring_enter: ENOSYS
# expect io_uring_register: ENOSYS
# expect bpf: EPERM
# expect userfaultfd: EPERM
# expect perf: EPERM
# expect memfd_secret: EPERM
# expect keyctl-session: EPERM
# expect add_key: EPERM
# expect request_key: EPERM
# expect syslog: EPERM
# expect fanotify: EPERM
# expect quotactl: EPERM
# expect acct: EPERM
# expect init_module: EPERM
# expect personality: EPERM
# expect move_pages: EPERM
# bare io_uring: EFAULT|EPERM
# bare personality: ok
# bare move_pages: ok|ENODEV|EINVAL
from attempt import *

attempt("io_uring", lambda: call("io_uring_setup", 1, 0))
attempt("io_uring_enter", lambda: call("io_uring_enter", -1, 0, 0, 0, 0, 0))
attempt("io_uring_register", lambda: call("io_uring_register", -1, 0, 0, 0))
attempt("bpf", lambda: call("bpf", 99, 0, 0))
attempt("userfaultfd", lambda: call("userfaultfd", 0x40000000))
attempt("perf", lambda: call("perf_event_open", 0, 0, -1, -1, 0))
attempt("memfd_secret", lambda: call("memfd_secret", 0x40000000))
attempt("keyctl-session", lambda: call("keyctl", 0, -3, 0, 0, 0))
attempt("add_key", lambda: call("add_key", b"user", b"x", b"y", 1, -4))
attempt("request_key", lambda: call("request_key", b"user", b"x", 0, 0))
attempt("syslog", lambda: call("syslog", 10, 0, 0))
attempt("fanotify", lambda: call("fanotify_init", -1, 0))
attempt("quotactl", lambda: call("quotactl", 0, 0, 0, 0))
attempt("acct", lambda: call("acct", b"/nonexistent/x"))
attempt("init_module", lambda: call("init_module", 0, 0, 0))
attempt("personality", lambda: in_child(lambda: call("personality", 0x0040000))())
attempt("move_pages", lambda: call("move_pages", 0, 0, 0, 0, 0, 0))
