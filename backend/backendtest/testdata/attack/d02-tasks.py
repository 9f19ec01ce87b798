# id: D02 D06
# tries: 600 processes, 600 threads, 500 orphans
# expect processes: EAGAIN below the limit
# expect[L1] processes: *
# expect threads: EAGAIN below the limit
# expect[L1] threads: *
# expect orphans: ok
# expect[L1] orphans: *
# limit-ends[L1]: yes
from attempt import *
import threading, time

limit = int(os.environ["MAXTASKS"])


def processes():
    pids, out = [], "no limit"
    for _ in range(600):
        try:
            p = os.fork()
        except OSError as e:
            out = "%s %s the limit" % (code(e), "below" if len(pids) < limit else "above")
            break
        if p == 0:
            time.sleep(20)
            os._exit(0)
        pids.append(p)
    for p in pids:
        os.kill(p, 9)
        os.waitpid(p, 0)
    return out


attempt("processes", processes)


def threads():
    n, out, go = 0, "no limit", threading.Event()
    threading.stack_size(64 << 10)
    try:
        for _ in range(600):
            threading.Thread(target=go.wait, daemon=True).start()
            n += 1
    except RuntimeError:
        out = "EAGAIN %s the limit" % ("below" if n < limit else "above")
    go.set()
    time.sleep(0.2)
    return out


attempt("threads", threads)


def orphans():
    for _ in range(500):
        for again in range(200):
            try:
                p = os.fork()
                break
            except OSError:
                time.sleep(0.01)
        if p == 0:
            try:
                os.fork()
            except OSError:
                pass
            os._exit(0)
        os.waitpid(p, 0)


attempt("orphans", orphans)
