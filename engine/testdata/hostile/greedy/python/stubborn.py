# tries: to compute without end, and to ignore every signal and exception
# wall: the timeout, which ends with SIGKILL
# expect: the run ends as timed_out, and its session serves on
import signal, time
for s in signal.valid_signals():
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True:
    try:
        while True: pass
    except BaseException: pass
