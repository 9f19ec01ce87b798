# id: D20
# tries: to use the processor by processes that nobody waits for, so that their time is nobody's
# kind: a Go test runs it
import os, signal, time

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
r, w = os.pipe()
for _ in range(6):
    if os.fork() == 0:
        while time.process_time() < 0.25:
            pass
        os.write(w, b"x")
        os._exit(0)
    os.read(r, 1)
print("burned", flush=True)
time.sleep(0.5)
