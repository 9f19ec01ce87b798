import errno, json, os, signal, sys, time

site = json.load(sys.stdin)


def report(text):
    print(json.dumps({"probe": TRY, "report": text}), flush=True)


def memory():
    held = []
    try:
        for _ in range(24):
            held.append(bytearray(os.urandom(1 << 10)) * (8 << 10))
    except MemoryError:
        held.clear()
        return "ENOMEM"
    return "it got all of it"


def disk():
    with open("probe-file", "wb", buffering=0) as f:
        try:
            for _ in range(96):
                f.write(b"x" * (1 << 20))
            return "it wrote all of it"
        finally:
            os.unlink("probe-file")


def processes():
    children = []
    try:
        for _ in range(48):
            pid = os.fork()
            if pid == 0:
                time.sleep(10)
                os._exit(0)
            children.append(pid)
        return "it started all of them"
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def busy():
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, signal.SIG_IGN)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        pass
    return "it ran to its end"


def output():
    for _ in range(256):
        print("x" * 4095, flush=True)
    return "it wrote all of it"


def daemon():
    """Leaves a process that has no parent, session or streams of this one, and ends by itself."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(3):
                os.close(fd)
            for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(s, signal.SIG_IGN)
            os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(4)", site["token"]])
        os._exit(0)
    os.wait()
    return "started"


try:
    report({"memory": memory, "disk space": disk, "processes": processes, "time": busy, "output": output, "daemon": daemon}[TRY]())
except OSError as e:
    report(errno.errorcode.get(e.errno, str(e.errno)))
