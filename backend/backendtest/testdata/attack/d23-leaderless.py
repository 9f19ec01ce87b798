# id: D23
# tries: to outlive the end of its session's interpreter, by a thread that goes on when the first one has ended
# kind: a Go test runs it
import ctypes, os, platform, threading, time


def rest():
    while "(zombie)" not in open("/proc/self/status").read():
        time.sleep(0.01)
    os.write(1, b"alone\n")
    time.sleep(60)


threading.Thread(target=rest).start()
ctypes.CDLL(None).syscall(93 if platform.machine() == "aarch64" else 60, 0)  # exit, of this thread alone
