# Takes as much as it gets of what is counted per user: processes, pending signals, message queues, locks.
import ctypes, os, signal, sys, time

libc = ctypes.CDLL(None, use_errno=True)
n = 0
for _ in range(400):
    try:
        if os.fork() == 0:
            time.sleep(40)
            os._exit(0)
        n += 1
    except OSError:
        break
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
for _ in range(5000):
    if libc.sigqueue(os.getpid(), signal.SIGRTMIN, None) != 0:
        break
print("up", n, flush=True)
time.sleep(60)
