# The zygote: an interpreter that waits and is forked into sandboxes. The driver's script
# follows this text in the same file. serve() returns only in a fork. The script then runs
# as in a new interpreter: serve() leaves no names, modules or descriptors behind.
#
# The zygote owns the user namespaces of the sandboxes. It has the capabilities to enter
# them and no others, and a seccomp filter. It parses only what the server sends. The
# program of a sandbox never passes through it: the server sends that to the fork, over
# the fork's own socket, after the fork has its walls.
#
# The zygote imports no packages. A fork imports packages in a sandbox of its own and saves
# its memory. Other forks load that memory, each in its own sandbox (snapshot.c).
#
# Descriptor 3 is the socket to the server. The first packet on it holds numbers of system
# calls, settings and the code of snapshot.c. The server sends the walls of a fork as a list
# of system calls, in the format that init.c defines.
def serve():
    import sys
    had = set(sys.modules)
    import posix, _ctypes, _socket

    class c_long(_ctypes._SimpleCData):
        _type_ = "l"

    class c_char(_ctypes._SimpleCData):
        _type_ = "c"

    class c_int(_ctypes._SimpleCData):
        _type_ = "i"

    class Syscall(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
        _restype_ = c_long
        _argtypes_ = (c_long,) * 7

    class Code(_ctypes.CFuncPtr):  # a function of snapshot.c, called with the GIL held
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI
        _restype_ = c_long
        _argtypes_ = (c_long,) * 5

    class Hook(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI
        _restype_ = None
        _argtypes_ = ()

    library = _ctypes.dlopen(None, 2)
    syscall = Syscall(_ctypes.dlsym(library, "syscall"))
    pid_namespace, numbers, bytes_, descriptor = 0x20000000, 0, 1, 2
    store64, most_passed, most_kept = 0xFFFFFFFF, 16, 64
    passed, results = (c_char * (4 * most_passed))(), (c_char * (8 * most_kept))()

    def word(packet, at, size=4):
        return int.from_bytes(packet[at:at + size], "little")

    def parse(packet):
        """Returns a script's memory, which must be kept, its calls as snapshot.c reads them, and how many descriptors it needs."""
        memory = (c_char * len(packet)).from_buffer_copy(packet)
        base, calls, kept, need = _ctypes.addressof(memory), [], 0, 0
        for at in range(64, 64 + 64 * word(packet, 4), 64):
            nr, tags, args = word(packet, at), bytearray(6), []
            for i in range(6):
                tag, value = packet[at + 8 + i], word(packet, at + 16 + 8 * i, 8)
                if tag not in (numbers, bytes_, descriptor):
                    raise ValueError("no such argument")
                if tag == descriptor:
                    tags[i], need = 1, max(need, value + 1)
                args.append(base + value if tag == bytes_ else value)
            if nr == store64:
                c_long.from_address(args[0]).value = args[1]
            elif nr > 0xFFFF:
                raise ValueError("no such call")
            else:
                calls.append(packet[at:at + 8] + tags + packet[at + 14:at + 16] + b"".join(a.to_bytes(8, "little") for a in args))
                kept += packet[at + 14] != 0
        if kept > most_kept:
            raise ValueError("too many results")
        calls = (c_char * (64 * len(calls))).from_buffer_copy(b"".join(calls))
        return memory, calls, need

    def build(calls, need, fds):
        """Makes the calls, which build the walls, and returns the results of the probes among them."""
        if not need <= len(fds) <= most_passed:
            raise ValueError("not as many descriptors as the script needs")
        for at, fd in enumerate(fds):
            c_int.from_address(_ctypes.addressof(passed) + 4 * at).value = fd
        kept = Code(area + 48)(_ctypes.addressof(calls), len(calls) // 64, _ctypes.addressof(passed), _ctypes.addressof(results), 0)
        if kept < 0:
            raise OSError(-kept, "system call %d" % word(results.raw, 0))
        return [word(results.raw, 8 * at) for at in range(kept)]

    def receive(socket, size):
        packet, rights, flags, _ = socket.recvmsg(size, 256, 0x40000000)  # MSG_CMSG_CLOEXEC
        fds = []
        for _, _, data in rights:
            fds += [int.from_bytes(data[i:i + 4], sys.byteorder) for i in range(0, len(data) - 3, 4)]
        return packet, fds

    def answer(kind, *values):
        return b"".join((v & 0xFFFFFFFF).to_bytes(4, "little") for v in (kind[0],) + values)

    def fork(calls, fds):
        """Forks twice, so that the child's parent becomes the sandbox's init. Returns True in the child."""
        error = syscall(nr_setns, fds[0], pid_namespace, 0, 0, 0, 0)
        if error < 0:
            raise OSError(_ctypes.get_errno(), "enter the pid namespace")
        pid = -1
        try:
            pid = posix.fork()
            if pid == 0:
                try:
                    pid = posix.fork()
                except BaseException:
                    posix._exit(1)
                if pid:
                    posix._exit(0)
                return True
        finally:
            if pid and syscall(nr_setns, home, pid_namespace, 0, 0, 0, 0) < 0:
                posix._exit(1)
        if posix.waitpid(pid, 0)[1]:
            raise OSError(11, "fork")
        return False

    def wait():
        """Serves the server's requests. Returns only in a fork: its script, its descriptors and the request's ahead flag."""
        plans = {}
        while True:
            packet, fds = receive(control, 1 << 17)
            if not packet:
                posix._exit(0)
            number = word(packet, 4)
            try:
                if packet[:1] == b"W":
                    plans[number] = parse(packet[8:])
                elif packet[:1] == b"F" and len(posix.listdir("/proc/self/task")) == 1:
                    if fork(plans[number], fds):
                        return plans[number], fds, word(packet, 8)
                else:
                    raise ValueError
                said = answer(b"P")
            except OSError as error:
                said = answer(b"E", error.errno or 5)
            except Exception:
                said = answer(b"E", 22)
            for fd in fds:
                posix.close(fd)
            control.send(said)

    def own_memory():
        """Returns (start, size) of all private writable memory."""
        found = []
        with open("/proc/self/maps") as file:
            for line in file:
                span, rights, _ = line.split(None, 2)
                if rights == "rw-p":
                    start, end = (int(n, 16) for n in span.split("-"))
                    found.append((start, end - start))
        return found

    def report(to):
        """Writes (start, size) of all pages that this fork has written to, which are no longer shared with its parent."""
        size, found = posix.sysconf("SC_PAGESIZE"), b""
        with open("/proc/self/pagemap", "rb", 0) as file:
            for start, length in own_memory():
                file.seek(start // size * 8)
                flags, at = file.read(length // size * 8)[7::8], 0
                while at < len(flags):
                    end = at
                    while end < len(flags) and flags[end] & 0x81 == 0x81:  # present and mapped by this process only
                        end += 1
                    if end > at:
                        found += (start + at * size).to_bytes(8, "little") + ((end - at) * size).to_bytes(8, "little")
                    at = end + 1
        posix.write(to, found[:1 << 16])

    def written():
        """Returns (start, size) of the pages that nearly every program writes to. A fork finds them: it runs a few
        typical lines, and then the driver's script on an empty program. Returns None in that fork."""
        found, (ours, theirs) = b"", posix.pipe()
        pid = posix.fork()
        if pid == 0:
            null = posix.open("/dev/null", posix.O_RDWR)
            for fd in 1, 2, 3:
                posix.dup2(null, fd)
            leave = posix._exit

            def end(code):
                try:
                    report(theirs)
                finally:
                    leave(0)

            posix._exit = end
            exec("def f(a, *b, **c):\n    return [x for x in range(9)]\nclass A:\n    pass\nprint(f(1), A(), {'a': 1.5}, '%s' % 2)\n", {})
            sys.argv[-1] = "/dev/null"
            return None
        posix.close(theirs)
        while part := posix.read(ours, 1 << 16):
            found += part
        posix.close(ours)
        posix.waitpid(pid, 0)
        if not found:  # the script did not exit through posix._exit
            found = [span for span in own_memory() if span[1] < 4 << 20]
            return found
        return [(word(found, at, 8), word(found, at + 8, 8)) for at in range(0, len(found) - 15, 16)]

    def forget():
        """Removes the names and modules of this file."""
        control.detach()
        forget_modules()
        del main["serve"]

    def forget_modules():
        while own:
            del sys.modules[own.pop()]

    def place_code():
        """Maps the code of snapshot.c and its working memory, at the same address in all forks. The code records the
        current mappings."""
        at = syscall(nr_mmap, 0, 1 << 21, 3, 0x22, -1, 0)  # READ|WRITE; PRIVATE|ANONYMOUS
        if at == -1:
            raise OSError(_ctypes.get_errno(), "map the code of snapshots")
        (c_char * len(code)).from_address(at).raw = code
        if syscall(nr_mprotect, at, 1 << 14, 5, 0, 0, 0) < 0:  # READ|EXEC
            raise OSError(_ctypes.get_errno(), "make the code of snapshots executable")
        Code(at)(at, 0, 0, 0, 0)
        return at

    def save(text, to):
        """Imports packages and saves the memory of this process to a file. It returns True in forks that have loaded
        the file, and None in the fork that written() makes."""
        nonlocal memory
        if posix.fork():  # a new process id, so that libraries that compare it detect the later fork
            posix._exit(0)
        try:
            forget_modules()
            had = dict(posix.environ)
            exec(compile(text, serve_file, "exec"), main)
            now = posix.environ
            changed.update((name, (had.get(name), now.get(name))) for name in had.keys() | now.keys() if had.get(name) != now.get(name))
            if len(posix.listdir("/proc/self/task")) != 1:
                raise OSError(11, "there are threads")
            if len(posix.listdir("/proc/self/fd")) != to + 2:  # 0 to `to`, and the one that listdir opens
                raise OSError(9, "there are open files")
            if not stays:
                memory = written()
                if memory is None:
                    return None
            file = posix.open("/mnt/data/snapshot", posix.O_CREAT | posix.O_EXCL | posix.O_WRONLY | posix.O_CLOEXEC, 0o600)
            before_fork()
            result = Code(area + 16)(area, file, posix.sysconf("SC_PAGESIZE"), 0, 0)
            if result < 0:
                raise OSError(-result, "save")
        except BaseException as error:
            posix.write(to, answer(b"E", getattr(error, "errno", 0) or 5) + ascii(error)[:200].encode())
            posix._exit(1)
        if not result:
            posix.write(to, answer(b"R"))
            posix._exit(0)
        after_fork()
        if result == 2:
            populate()
        return True

    def populate():
        """Copies the pages that a program will write to now, so that they cause no page faults while it runs."""
        for start, size in memory:
            syscall(nr_madvise, start, size, 23, 0, 0, 0)  # MADV_POPULATE_WRITE

    def load(image, ahead):
        """Replaces this process's memory by the image. Does not return; the process goes on in save()."""
        Code(area + 32)(area, image, rseq, rseq_size, ahead)

    def limit_files():
        """Lowers the limit of open files to that of programs. The fork has sent its own pidfd before: the kernel refuses
        to send descriptors while the user has more of them in flight than this limit."""
        if not files:
            return
        limit = (c_char * 16).from_buffer_copy(2 * files.to_bytes(8, "little"))
        if syscall(nr_prlimit64, 0, 7, _ctypes.addressof(limit), 0, 0, 0) < 0:  # RLIMIT_NOFILE
            raise OSError(_ctypes.get_errno(), "limit open files")

    def child(plan, fds, ahead):
        """Builds the walls in a fork and waits for its program. Returns the packet of the program; None as save()."""
        _, calls, need = plan  # plan[0] is the memory that the calls point to
        socket = _socket.socket(fileno=fds[1])
        try:
            self = posix.pidfd_open(posix.getpid(), 0)
            found = build(calls, need, fds)
            if ahead:
                populate()
            while posix.getppid() != 1:  # until the intermediate process has ended
                posix.sched_yield()
            socket.sendmsg([answer(b"R", posix.getpid(), *found)], [(1, 1, self.to_bytes(4, sys.byteorder))])
            limit_files()
            posix.dup2(socket.detach(), 3, False)
            posix.closerange(4, 1 << 20)
            socket = _socket.socket(fileno=3)
            while True:
                packet, fds = receive(socket, 1 << 18)
                if not packet:
                    posix._exit(0)
                if packet[:2] == b"S\0":
                    break
                if packet[:1] == b"I":  # import and save; the answer goes to descriptor 4
                    if save(packet[4:], 4) is None:
                        return None
                    posix.write(4, answer(b"R"))
                elif packet[:1] == b"L":  # load the image of descriptor 5; the answer goes to descriptor 4
                    load(5, word(packet, 4))
                posix.closerange(4, 1 << 20)
            socket.detach()
            for to, fd in enumerate(fds):
                posix.dup2(fd, to)
            posix.closerange(len(fds), 1 << 20)
            return packet
        except BaseException as error:
            try:
                socket.send(answer(b"E", getattr(error, "errno", 0) or 5))
            finally:
                posix._exit(1)

    def text(value):
        return value.decode("utf-8", "surrogateescape")

    serve_file = sys._getframe().f_code.co_filename
    before_fork, after_fork = Hook(_ctypes.dlsym(library, "PyOS_BeforeFork")), Hook(_ctypes.dlsym(library, "PyOS_AfterFork_Child"))
    try:
        rseq, rseq_size = c_long.from_address(_ctypes.dlsym(library, "__rseq_offset")).value, 32
    except OSError:  # a C library that does not use rseq
        rseq = rseq_size = 0
    control = _socket.socket(fileno=3)
    facts, _ = receive(control, 1 << 17)
    nr_setns, nr_madvise, nr_mmap, nr_mprotect, nr_prlimit64, stays = (word(facts, at) for at in range(4, 28, 4))
    files, code = word(facts, 28, 8), facts[36:]
    home = posix.open("/proc/self/ns/pid", posix.O_RDONLY | posix.O_CLOEXEC)
    changed = {}  # environment variables that packages changed: name to (old, new)
    own = [name for name in sys.modules if name not in had]  # listed here, because a fork that reads all names copies their pages
    area = place_code()
    memory = [] if stays else written()
    if memory is None:
        return forget()
    control.send(answer(b"R"))
    packet = child(*wait())
    if packet is None:
        return forget()
    strings = packet.split(b"\0")
    options, count, directory = int(strings[1]), int(strings[2]), strings[3]
    argv, env = strings[4:4 + count], {}
    for entry in strings[4 + count:-1]:
        name, _, value = entry.partition(b"=")
        env[name] = value
    posix.chdir(directory)
    for name, (old, new) in changed.items():  # packages changed these when they were imported
        if env.get(name) == old:
            env[name] = new
    env = {name: value for name, value in env.items() if value is not None}
    for name in posix.environ.keys() - env.keys():
        posix.unsetenv(name)
        del posix.environ[name]
    for name, value in env.items():
        if posix.environ.get(name) != value:
            posix.putenv(name, value)
            posix.environ[name] = value
    sys.orig_argv = [text(a) for a in argv]
    sys.argv = sys.orig_argv[options:]
    sys.path_importer_cache.pop(sys.path[0], None)
    forget()


type(serve)(serve.__code__, {"__builtins__": __builtins__, "main": globals()})()
