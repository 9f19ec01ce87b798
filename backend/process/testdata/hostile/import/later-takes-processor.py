# tries: to use the processor while its sandbox waits for a program
# wall: package code may use a second of it
# expect: the process "canary-waits" is ended, and the next program is not told of it
import ctypes, os, time
def later():
    if os.getppid() != 1:  # not the fork that a program gets
        return
    ours, theirs = os.pipe()
    if os.fork():
        os.close(theirs)
        os.read(ours, 1)
        os.close(ours)
        return
    ctypes.CDLL(None).prctl(15, b'canary-waits', 0, 0, 0)
    for fd in ours, theirs, 0, 1, 2, 3, 4, 5:
        try:
            os.close(fd)
        except OSError:
            pass
    time.sleep(0.5)
    while True:
        pass
    while True:
        time.sleep(60)
os.register_at_fork(after_in_child=later)
