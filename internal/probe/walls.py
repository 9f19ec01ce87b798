import ctypes, errno, json, os, platform, socket, stat, struct, sys

site = json.load(sys.stdin)  # what the caller made for the probes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
ARM = platform.machine() == "aarch64"
NR = dict(fsopen=(430, 430), ptrace=(101, 117), bpf=(321, 280), io_uring_setup=(425, 425), userfaultfd=(323, 282),
          perf_event_open=(298, 241), keyctl=(250, 219), unshare=(272, 97),
          open_by_handle_at=(304, 265), syslog=(103, 116))


def code(e):
    return errno.errorcode.get(e.errno, str(e.errno))


def call(name, *args):
    """Makes a system call. What it returns is a number; an error is an OSError."""
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(NR[name][ARM]), *[a if isinstance(a, bytes) or not isinstance(a, int) else ctypes.c_ulong(a & (1 << 64) - 1) for a in args])
    if r < 0:
        raise OSError(ctypes.get_errno(), name)
    return r


def probe(name, *attempts):
    """Reports the error of each attempt, or what the first that succeeds has got."""
    errors = []
    for f in attempts:
        try:
            got = f()
        except OSError as e:
            errors.append(code(e))
            continue
        if got is not None:
            errors = [got]
            break
    print(json.dumps({"probe": name, "report": " ".join(dict.fromkeys(errors))}), flush=True)


def in_child(f):
    """Calls f in a child that ends at once, because it may change the process."""
    def g():
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                f()
                os.write(w, b"0")
            except OSError as e:
                os.write(w, b"%d" % e.errno)
            finally:
                os._exit(0)
        os.close(w)
        told = os.read(r, 16)
        os.close(r)
        os.waitpid(pid, 0)
        if told != b"0":
            raise OSError(int(told or b"5"), "child")
        return "it succeeded"
    return g


def read(path):
    def f():
        with open(path) as file:
            return "it read: " + file.read(64)
    return f


def opened(path, flags=os.O_RDONLY):
    def f():
        os.close(os.open(path, flags | os.O_NONBLOCK))
        return "it opened " + path
    return f


c = site["canary"]
probe("host file", read(c), read("/proc/self/root" + c), read("/proc/1/root" + c), read("/proc/self/cwd" + "/.." * 8 + c), read("../" * 8 + c[1:]))


def write():
    with open(site["drop"] + "/probe", "x"):
        pass
    return "it made a file"


probe("host write", write)


def modes():
    """A call may succeed and change nothing."""
    found = "unchanged"
    for change in (lambda: os.chmod(c, 0o646), lambda: os.utime(c, (5, 5)), lambda: os.setxattr(c, "user.probe", b"x")):
        before = os.stat(c)
        try:
            change()
        except OSError as e:
            if e.errno not in (errno.EPERM, errno.EACCES, errno.EROFS, errno.EOPNOTSUPP):
                raise
            continue
        now = os.stat(c)
        if (now.st_mode, now.st_mtime, now.st_ctime_ns) != (before.st_mode, before.st_mtime, before.st_ctime_ns):
            found = "it changed the file"
    return found


probe("host modes", modes)
probe("passwords", opened("/etc/shadow"), opened("/proc/1/root/etc/shadow"))


def home():
    """Leaves out names that only lead to a mount: an interpreter may stand below the home directory."""
    names = os.listdir(site["home"])
    with open("/proc/self/mountinfo") as f:
        mounts = [line.split()[4] + "/" for line in f]
    names = [n for n in names if not any(m.startswith(os.path.join(site["home"], n) + "/") for m in mounts)]
    return "it listed %d names" % len(names) if names else "empty"


probe("home", home)
probe("disk", *[opened("/dev/" + d) for d in ("mem", "kmem", "port", "sda", "vda", "nvme0n1", "xvda", "dm-0")])


def process():
    with open("/proc/%d/stat" % site["pid"]) as f:
        start = f.read().rsplit(")", 1)[1].split()[19]
    return "it found the process" if start == site["start"] else "another process"


def signal():
    os.kill(site["pid"], 0)  # signal 0 is no signal
    return process()


probe("process", signal)
probe("process memory", opened("/proc/1/mem"), opened("/proc/1/environ"), lambda: os.listdir("/proc/1/fd") and "it listed the files")
probe("trace", in_child(lambda: call("ptrace", 0, 0, 0, 0)))
probe("namespaces", in_child(lambda: call("unshare", 0x10000000)))
probe("mounts", lambda: os.close(call("fsopen", b"tmpfs", 0)) or "it succeeded", in_child(lambda: call("unshare", 0x20000)))
probe("chroot", in_child(lambda: os.chroot(".")))


def root():
    os.setresuid(0, 0, 0)


probe("root", in_child(root))
probe("set-uid", lambda: "never again" if libc.prctl(39, 0, 0, 0, 0) == 1 else "new rights are allowed")


def device():
    name = "probe-device"
    os.mknod(name, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # the device null
    os.unlink(name)
    return "it made one"


probe("devices", device)


def handle():
    h = ctypes.create_string_buffer(struct.pack("<Ii", 8, 1) + struct.pack("<II", 2, 0) + bytes(120))
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.close(call("open_by_handle_at", fd, ctypes.byref(h), 0))
    finally:
        os.close(fd)
    return "it opened it"


probe("file handles", handle)


def made(name, *args):
    def f():
        os.close(call(name, *args))
        return name + " succeeded"
    return f


attr = ctypes.create_string_buffer(struct.pack("<IIQ", 1, 112, 0) + bytes(96))  # a clock, of this process, that does not count
ring = ctypes.create_string_buffer(120)
table = ctypes.create_string_buffer(struct.pack("<IIII", 2, 4, 4, 1) + bytes(104))


def keys():
    call("keyctl", 0, -3, 0)  # the number of the session's keyring
    return "keyctl succeeded"


probe("kernel calls", made("bpf", 0, ctypes.byref(table), 72), made("io_uring_setup", 1, ctypes.byref(ring)), made("userfaultfd", 1),
      made("perf_event_open", ctypes.byref(attr), 0, -1, -1, 0), keys)


def log():
    call("syslog", 10, 0, 0)  # the size of the log
    return "it was told the log's size"


probe("kernel log", log)


def descriptors():
    for fd in range(3, 1024):
        try:
            os.close(os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd))
            return "descriptor %d is a directory" % fd
        except OSError:
            pass
    return "none"


probe("descriptors", descriptors)


def connect(family, address):
    def f():
        with socket.socket(family) as s:
            s.settimeout(3)
            s.connect(address)
        return "it connected"
    return f


probe("host port", connect(socket.AF_INET, ("127.0.0.1", site["port"])))
probe("host socket", connect(socket.AF_UNIX, site["socket"]))
probe("abstract socket", connect(socket.AF_UNIX, "\0" + site["abstract"]))
