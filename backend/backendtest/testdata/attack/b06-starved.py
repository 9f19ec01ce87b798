# id: B06
# tries: to work beside a sandbox that takes everything that is counted per user
# beside: starve.py
# expect fork: ok
# expect signals: ok
# expect[L1,user] signals: ok|EAGAIN
# expect threads: ok
from attempt import *
import threading, time


def fork():
    pids = []
    for _ in range(10):
        p = os.fork()
        if p == 0:
            os._exit(0)
        pids.append(p)
    for p in pids:
        os.waitpid(p, 0)


attempt("fork", fork)


def queue():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    if libc.sigqueue(os.getpid(), signal.SIGRTMIN, None) != 0:
        raise OSError(ctypes.get_errno(), "sigqueue")


attempt("signals", queue)


def threads():
    t = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(5)]
    [x.start() for x in t]
    [x.join() for x in t]


attempt("threads", threads)
