# tries: to delay its end with many tasks that compute and ignore signals, in a sandbox with a hundredth of a core
# wall: a kill lifts the CPU quota of the sandbox, so that its tasks can end
# expect: the kill ends within 2 s
import os, signal
for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)
for _ in range(40):
    if os.fork() == 0:
        while True: pass
os.write(1, b"up")
while True: pass
