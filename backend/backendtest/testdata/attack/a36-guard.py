# id: A36
# tries: to change the limits, the rank and the processors of the init that guards it, by each call and name; its own it may
# expect limits: EPERM
# expect read: EPERM
# expect high: EPERM
# expect priority: EPERM
# expect group: EPERM
# expect user: EPERM
# expect scheduler: EPERM
# expect param: EPERM
# expect attr: ENOSYS
# expect affinity: EPERM
# expect io: EPERM
# expect io-group: EPERM
# expect io-user: EPERM
# expect reap: EPERM
# expect own-limits: ok
# expect own-priority: ok
# expect own-io: ok
# expect own-scheduler: ok
# expect own-number: ok
# expect[L1] own-number: EPERM
from attempt import *
import resource


# without namespaces programs see the host's processes, and init is the parent
GUARD = 1 if os.environ["WORK"] == "/mnt/data" else os.getppid()
small = (ctypes.c_ulong * 2)(3, 3)
mask = (ctypes.c_ulong * 1)(1)
attributes = (ctypes.c_uint32 * 12)(48, 5)

attempt("limits", lambda: call("prlimit64", GUARD, 7, ctypes.byref(small), 0))
attempt("read", lambda: call("prlimit64", GUARD, 7, 0, ctypes.byref((ctypes.c_ulong * 2)())))
attempt("high", lambda: call("prlimit64", GUARD | 1 << 40, 7, ctypes.byref(small), 0))
attempt("priority", lambda: call("setpriority", 0, GUARD, 19))
attempt("group", lambda: call("setpriority", 1, GUARD, 19))
attempt("user", lambda: call("setpriority", 2, 0, 19))
attempt("scheduler", lambda: call("sched_setscheduler", GUARD, 5, ctypes.byref(ctypes.c_int(0))))
attempt("param", lambda: call("sched_setparam", GUARD, ctypes.byref(ctypes.c_int(0))))
attempt("attr", lambda: call("sched_setattr", GUARD, ctypes.byref(attributes), 0))
attempt("affinity", lambda: call("sched_setaffinity", GUARD, 8, ctypes.byref(mask)))
attempt("io", lambda: call("ioprio_set", 1, GUARD, 3 << 13))
attempt("io-group", lambda: call("ioprio_set", 2, GUARD, 3 << 13))
attempt("io-user", lambda: call("ioprio_set", 3, 0, 3 << 13))
attempt("reap", lambda: call("process_mrelease", -1, 0))
attempt("own-limits", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
attempt("own-priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0)))
attempt("own-io", lambda: call("ioprio_set", 1, 0, 3 << 13))
attempt("own-scheduler", in_child(lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))))
attempt("own-number", lambda: call("prlimit64", os.getpid(), 7, 0, ctypes.byref((ctypes.c_ulong * 2)())))
