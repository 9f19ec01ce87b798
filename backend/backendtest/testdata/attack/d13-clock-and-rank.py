# id: D13 D14 D15 D16
# tries: to set the clock, to stall the disk, to be spared by the OOM killer, to lift its limits, to go first
# expect settime: EPERM
# expect adjtime: EPERM
# expect timens: EPERM
# expect sync: EPERM
# expect syncfs: EPERM
# expect fsync: ok
# expect oom: EACCES
# expect oom-score: 1000
# expect[L1] oom-score: EACCES
# expect nofile: EPERM
# expect nproc: EPERM
# expect[L1] nproc: *
# expect nice: EPERM|EACCES
# expect fifo: EPERM
# expect priority: EPERM|EACCES
# expect affinity: *
from attempt import *
import resource, time


def settime():
    time.clock_settime(time.CLOCK_REALTIME, time.time())


attempt("settime", settime)
attempt("adjtime", lambda: call("adjtimex", ctypes.byref(ctypes.create_string_buffer(512))))
attempt("timens", in_child(lambda: call("unshare", 0x80)))
attempt("sync", lambda: call("sync"))
attempt("syncfs", lambda: call("syncfs", 1))


def fsync():
    with open(os.environ["WORK"] + "/s", "w") as f:
        for _ in range(200):
            f.write("x")
            f.flush()
            os.fsync(f.fileno())


attempt("fsync", fsync)


def oom():
    with open("/proc/self/oom_score_adj", "w") as f:
        f.write("-1000")


attempt("oom", oom)


def oom_score():
    with open("/proc/self/oom_score_adj") as f:
        return f.read().strip()


attempt("oom-score", oom_score)


def lift(which):
    def f():
        try:
            resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except ValueError:
            raise OSError(errno.EPERM, "setrlimit")
    return f


attempt("nofile", lift(resource.RLIMIT_NOFILE))
attempt("nproc", lift(resource.RLIMIT_NPROC))
attempt("nice", lambda: os.nice(-5) and None)
attempt("fifo", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
attempt("affinity", lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)))
