# id: D04 D05
# tries: to outlive everything: deaf to signals, stopped, in sessions of its own, busy, forking. All of it ends by itself after a while.
# kind: a Go test runs it
import os, signal, sys, time

end = time.monotonic() + 150


def deaf():
    for s in range(1, 65):
        try:
            signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError):
            pass


def busy():
    while time.monotonic() < end:
        pass
    os._exit(0)


def fork(f):
    try:
        if os.fork() == 0:
            f()
            os._exit(0)
    except OSError:
        pass


def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)
    busy()


def daemon():
    os.setsid()
    if os.fork():
        os._exit(0)
    busy()


def storm():
    for _ in range(200):
        fork(lambda: time.sleep(max(0, end - time.monotonic())))
    n = 0
    while time.monotonic() < end and n < 3000:
        try:
            p = os.fork()
            if p == 0:
                time.sleep(0.05)
                os._exit(0)
            n += 1
        except OSError:
            time.sleep(0.002)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except OSError:
            pass
    busy()


deaf()
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
fork(stopped)
fork(daemon)
fork(busy)
if os.environ.get("STORM"):
    fork(storm)
time.sleep(0.05)
print("ready", flush=True)
busy()
