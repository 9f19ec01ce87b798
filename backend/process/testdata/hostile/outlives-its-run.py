# tries: to outlive its run: processes that ignore every signal, that are stopped, and that lead sessions of their own
# wall: the PID namespace: when its init ends, the kernel kills every process in it
# expect: no process of the namespace is left
import os, signal, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
r, w = os.pipe()
for i in range(4):
    if os.fork() == 0:
        if i % 2: os.setsid()
        if i == 2 and os.fork(): os._exit(0)
        os.write(w, b'x')
        if i == 3: os.kill(os.getpid(), 19)
        while True: time.sleep(1) if i else None
for i in range(4): os.read(r, 1)
print(os.readlink('/proc/self/ns/pid'), flush=True)
while True: time.sleep(1)
