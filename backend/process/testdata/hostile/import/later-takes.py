# tries: to take memory, file locks or the processor, as "takes" says, while its sandbox waits for a program
# wall: limits hold and kernel objects are counted from when package code may run, and it may use a second of the processor
# expect: the process "canary-waits" is ended, and the next program is not told of it
import ctypes, os, time
takes = ""
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
    if takes == "memory":
        held = []
        for i in range(180):
            held.append(bytearray(b'x' * (1 << 20)))
    elif takes == "locks":
        import fcntl
        file = open('/tmp/locked', 'w')
        for i in range(20000):
            fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * i)
    while takes == "processor":
        pass
    while True:
        time.sleep(60)
os.register_at_fork(after_in_child=later)
