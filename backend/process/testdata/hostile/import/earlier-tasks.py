# tries: to start more tasks than its program may have, by what runs while its sandbox waits for the program
# wall: a sandbox is not handed out if package code in it may have, or has, tasks above the program's limit
# expect: after the program has written /mnt/data/go, the sandbox has no more tasks than the program may have
import os, threading, time
starts = ""
def later():
    if os.getppid() != 1:  # not the fork that a program gets
        return
    if starts == "threads":
        for i in range(40):
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    elif not os.fork():
        for fd in range(10):
            try:
                os.close(fd)
            except OSError:
                pass
        while not os.path.exists('/mnt/data/go'):
            time.sleep(0.02)
        for i in range(40):
            if not os.fork():
                time.sleep(60)
                os._exit(0)
        time.sleep(60)
os.register_at_fork(after_in_child=later)
