# The zygote: an interpreter that waits and is forked into sandboxes. The driver's script
# follows this text in the same file. It calls the function "wait", which returns only in a
# fork. The script then runs as in a new interpreter: this text leaves no names, modules or
# descriptors behind, and what the script did before is what it does for every program.
#
# The zygote owns the user namespaces of the sandboxes. It has the capabilities to enter
# them and no others, and a seccomp filter. It parses only what the server sends. The
# program of a sandbox never passes through it: the server sends that to the fork, over
# the fork's own socket, after the fork has its walls.
#
# The zygote imports no packages. A fork imports packages in a sandbox of its own and saves
# its memory. Other forks load that memory, each in its own sandbox (snapshot.c).
#
# The forks are made by machine code (fork.c), which also builds their walls. It runs in the
# zygote while that waits: a zygote that interprets code between two forks copies pages.
#
# Descriptor 3 is the socket to the server. The first packet on it holds numbers of system
# calls, settings and the code of snapshot.c and fork.c. The server sends the walls of a fork
# as a list of system calls, in the format that init.c defines.
def serve():
    import sys
    had = set(sys.modules)
    import gc, posix, _ctypes, _socket

    class c_long(_ctypes._SimpleCData):
        _type_ = "l"

    class c_char(_ctypes._SimpleCData):
        _type_ = "c"

    class Syscall(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
        _restype_ = c_long
        _argtypes_ = (c_long,) * 7

    class Code(_ctypes.CFuncPtr):  # a function of snapshot.c or fork.c, called with the GIL held
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI
        _restype_ = c_long
        _argtypes_ = (c_long,) * 5

    class Hook(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI
        _restype_ = None
        _argtypes_ = ()

    class Object(_ctypes._SimpleCData):
        _type_ = "O"

    class Keep(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI
        _restype_ = None
        _argtypes_ = (Object,)

    library = _ctypes.dlopen(None, 2)
    syscall = Syscall(_ctypes.dlsym(library, "syscall"))
    numbers, bytes_, descriptor = 0, 1, 2
    store64, most_passed, most_kept, most_told, most_sent = 0xFFFFFFFF, 16, 64, 32, 16

    def c_chars(data):
        return (c_char * (len(data) or 1)).from_buffer_copy(data or b"\0")

    def word(packet, at, size=4):
        return int.from_bytes(packet[at:at + size], "little")

    def parse(packet):
        """Returns a script's memory, its calls as snapshot.c reads them, and its struct walls as fork.c reads it. All must be
        kept."""
        memory = (c_char * len(packet)).from_buffer_copy(packet)
        base, calls, kept, need = _ctypes.addressof(memory), [], {}, 0
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
                if packet[at + 14]:
                    kept[packet[at + 14]] = len(kept)
        if len(kept) > most_kept or need > most_passed:
            raise ValueError("too many results or descriptors")
        told, sent = (bytes(kept[r] for r in packet[at:at + n]) for at, n in ((16, word(packet, 8)), (48, word(packet, 12))))
        count, calls = len(calls), (c_char * (64 * len(calls))).from_buffer_copy(b"".join(calls))
        head = b"".join(n.to_bytes(8, "little") for n in (_ctypes.addressof(calls), count, need, len(told), len(sent)))
        return memory, calls, c_chars(head + told.ljust(most_told, b"\0") + sent.ljust(most_sent, b"\0"))

    def answer(kind, *values):
        return b"".join((v & 0xFFFFFFFF).to_bytes(4, "little") for v in (kind[0],) + values)

    def forks():
        """Serves the server's requests. Returns only in a fork that has its walls, as Code(area + 80) does."""
        while True:
            before_fork()
            size = Code(area + 64)(area, 0, 0, 0, 0)
            if size < 0:
                return size
            if size >> 32:
                return size & 0xFFFFFFFF
            fork_done()
            try:
                packet = received[:size]
                number = word(packet, 4)
                if packet[:1] != b"W" or number >= 32:
                    raise ValueError
                plans[number] = plan = parse(packet[8:])
                c_long.from_address(serving + 72 + 8 * number).value = _ctypes.addressof(plan[2])
                said = answer(b"P")
            except Exception:
                said = answer(b"E", 22)
            posix.write(3, said)

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
        """Writes (start, size) of all pages that this fork has written to, which are no longer shared with its parent, and
        (start, size + 1) of those of files that it has only read."""
        Code(area + 112)(area, to, page, 0, 0)

    def written(imported=False):
        """Returns (start, size) of the pages that nearly every program writes to, and of those of files that it reads. A
        fork finds them: it gets a small program as other forks get theirs. If packages were imported, it has the memory of
        an image, whose pages are those of a file. Returns None in that fork, and else the two lists as fork.c reads them."""
        found, (ours, theirs), pid = b"", posix.pipe(), None
        if imported:
            image = posix.open("/mnt/data/first", posix.O_CREAT | posix.O_EXCL | posix.O_RDWR | posix.O_CLOEXEC, 0o600)
            posix.unlink("/mnt/data/first")
            if remember(image):
                pid = 0
        if pid is None:
            pid = posix.fork()
            if pid == 0 and imported:
                load(image, 2)  # goes on in remember()
        if pid == 0:
            null, (program, text), (near, far) = posix.open("/dev/null", posix.O_RDWR), posix.pipe(), _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            passed = null, null, null, null, theirs, program
            far.sendmsg([rehearsed[imported]], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"".join(fd.to_bytes(4, sys.byteorder) for fd in passed))])
            posix.dup2(near.detach(), 3)
            far.detach()
            leave = posix._exit

            def end(code):
                try:
                    report(4)
                finally:
                    leave(0)

            posix._exit = end
            if known_again:
                known_again.leave = end
            typical = b""
            try:
                typical = main["again"].typical() or b""
            except Exception:  # no packages, or other ones
                pass
            posix.write(text, b"def f(a, *b, **c):\n    return [x for x in range(9)]\nprint(f(1), {'a': 1.5}, 2)\n" + typical)
            posix.close(text)
            return None
        if imported:
            posix.close(image)
        posix.close(theirs)
        while part := posix.read(ours, 1 << 16):
            found += part
        posix.close(ours)
        posix.waitpid(pid, 0)
        if not found:  # the script did not exit through one of these
            found = b"".join(n.to_bytes(8, "little") for span in own_memory() if span[1] < 4 << 20 for n in span)
        lists = [], []
        for at in range(0, len(found) // 16 * 16, 16):
            lists[found[at + 8] & 1].append(found[at:at + 8] + bytes((found[at + 8] & 254,)) + found[at + 9:at + 16])
        return [c_chars(b"".join(each)) for each in lists]

    def large_pages():
        """Moves the interpreter's code and constants into large pages. A fork gets each of these by one entry, which is
        copied, and otherwise makes fifty page faults there. They have no file and may all be executed."""
        large = 2 << 20
        if page != 4096:  # large pages have another size
            return
        c = {name: Syscall(_ctypes.dlsym(library, name)) for name in ("mmap", "munmap", "madvise", "mprotect", "mremap", "memcpy")}
        for at in windows(large):
            new = c["mmap"](0, 2 * large, 3, 0x22, -1, 0, 0)  # READ|WRITE; PRIVATE|ANONYMOUS
            if new == -1:
                return
            try:
                to, had = -(-new // large) * large, in_large_pages()
                c["madvise"](to, large, 14, 0, 0, 0, 0)  # HUGEPAGE
                c["memcpy"](to, at, large, 0, 0, 0, 0)
                if in_large_pages() - had < large >> 10 or c["mprotect"](to, large, 5, 0, 0, 0, 0):  # READ|EXEC
                    return
                if c["mremap"](to, large, large, 3, at, 0, 0) != at:  # MAYMOVE|FIXED
                    return
            finally:
                c["munmap"](new, 2 * large, 0, 0, 0, 0, 0)

    def windows(size):
        """Returns the aligned addresses at which so many bytes are of one file that has code, and none can be written to."""
        runs = [[0, 0, "", False]]
        with open("/proc/self/maps") as file:
            for line in file:
                span, rights, _, _, inode, *name = line.split(None, 5)
                start, end = (int(n, 16) for n in span.split("-"))
                if inode == "0" or rights[1] == "w" or rights[3] == "s":
                    continue
                if runs[-1][1:3] != [start, name]:
                    runs.append([start, end, name, False])
                runs[-1][1] = end
                runs[-1][3] |= rights[2] == "x"
        return [at for start, end, _, code in runs if code for at in range(-(-start // size) * size, end - size + 1, size)]

    def in_large_pages():
        """Returns how many KiB of this process's own memory are in large pages."""
        with open("/proc/self/smaps_rollup") as file:
            for line in file:
                if line.startswith("AnonHugePages:"):
                    return int(line.split()[1])
        return 0

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
        nonlocal spans, reads
        if posix.fork():  # a new process id, so that libraries that compare it detect the later fork
            posix._exit(0)
        try:
            had = dict(posix.environ)
            if known_again:
                main["again"] = known_again
            exec(compile(text, serve_file, "exec"), main)
            now = posix.environ
            changed.update((name, (had.get(name), now.get(name))) for name in had.keys() | now.keys() if had.get(name) != now.get(name))
            if len(posix.listdir("/proc/self/task")) != 1:
                raise OSError(11, "there are threads")
            if len(posix.listdir("/proc/self/fd")) != to + 2:  # 0 to `to`, and the one that listdir opens
                raise OSError(9, "there are open files")
            trim()
            if not stays:
                spans = written(True)
                if spans is None:
                    return None
                spans, reads = spans
            result = remember(posix.open("/mnt/data/snapshot", posix.O_CREAT | posix.O_EXCL | posix.O_WRONLY | posix.O_CLOEXEC, 0o600))
        except BaseException as error:
            posix.write(to, answer(b"E", getattr(error, "errno", 0) or 5) + ascii(error)[:200].encode())
            posix._exit(1)
        if not result:
            posix.write(to, answer(b"R"))
            posix._exit(0)
        c_long.from_address(serving + 336).value = 0  # what the packages have changed is not prepared
        if result == 2:  # copy and map the pages that a program will use now, so that they cause no page faults while it runs
            for pages, advice in (spans, 23), (reads, 22):  # POPULATE_WRITE, POPULATE_READ
                Code(area + 96)(_ctypes.addressof(pages), len(pages) // 16, advice, 0, 0)
        getattr(main.get("again"), "loaded", int)()
        return True

    def remember(file):
        """Saves the memory of this process to a file, which stays open. Returns more than 0 in forks that have loaded it."""
        before_fork()
        result = Code(area + 16)(area, file, page, 0, 0)
        if result < 0:
            raise OSError(-result, "save")
        (after_fork if result else fork_done)()
        return result

    def load(image, ahead):
        """Replaces this process's memory by the image. Does not return; the process goes on in save()."""
        Code(area + 32)(area, image, rseq, rseq_size, ahead)

    def child(size):
        """Waits in a fork for its program. Returns the packet of the program."""
        try:
            while True:
                packet = received[:size]
                if packet[:2] == b"S\0":
                    return packet
                if packet[:1] == b"I":  # import and save; the answer goes to descriptor 4
                    if save(packet[4:], 4):
                        posix.write(4, answer(b"R"))
                elif packet[:1] == b"L":  # load the image of descriptor 5; the answer goes to descriptor 4
                    load(5, word(packet, 4))
                size = Code(area + 80)(area, 0, 0, 0, 0)
        except BaseException:
            posix._exit(1)

    def trim():
        """Returns free memory to the kernel. Forks copy the page tables of the rest only, and images do not hold it."""
        if malloc_trim:
            malloc_trim(0, 0, 0, 0, 0, 0, 0)

    def text(value):
        return value.decode("utf-8", "surrogateescape")

    def wait(path=None, places=(), again=None, variants=()):
        """Serves as the zygote. Returns in a fork that has a program. If the program is the one that is prepared, but for one
        of variants as its first argument, and all places are there or missing as they are here, it returns the variant and
        the path. Else it returns None, and sys.argv has the arguments."""
        nonlocal spans, reads, known_again, rehearsed
        known_again = again
        usual, at = [], len(sys.orig_argv) - argc + 1
        for variant in variants:
            usual.append(sys.orig_argv[:at] + [variant] + sys.orig_argv[at + 1:])
        packets = [packed(argv) for argv in usual or [sys.orig_argv]]
        rehearsed = packets[0], packed([sample if word == path else word for word in usual[0]] if usual else sys.orig_argv)
        packets = c_chars(b"".join(len(p).to_bytes(8, "little") + p for p in packets) + bytes(8))
        looked = c_chars(b"".join(b"%d%s\0" % (there, place.encode("utf-8", "surrogateescape")) for place, there in places) + b"\0")
        for at, value in (336, packets), (344, looked):
            c_long.from_address(serving + at).value = _ctypes.addressof(value)
        found = stays or written()
        if found:
            if not stays:
                spans, reads = found
            for at, pages in (56, spans), (352, reads):
                c_long.from_address(serving + at).value, c_long.from_address(serving + at + 8).value = _ctypes.addressof(pages), len(pages) // 16
            posix.write(3, answer(b"R"))
            size = forks()
        else:
            path, size = sample, Code(area + 80)(area, 0, 0, 0, 0)
        if size < 0:
            if usual:
                sys.orig_argv = usual[-1 - size]
                return variants[-1 - size], path
            return None
        become(child(size).split(b"\0"))

    def packed(argv):
        """Returns the packet of a program with these arguments."""
        packet = b"S\0%d\0%d\0/mnt/data\0" % (len(argv) - argc, len(argv))
        return packet + b"".join(a.encode("utf-8", "surrogateescape") + b"\0" for a in argv) + b"".join(b"%s=%s\0" % v for v in posix.environ.items())

    def become(strings):
        """Sets arguments and environment to those of a program."""
        options, count = int(strings[1]), int(strings[2])
        posix.chdir(strings[3])
        argv, env = strings[4:4 + count], {}
        for entry in strings[4 + count:-1]:
            name, _, value = entry.partition(b"=")
            env[name] = value
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

    serve_file = sys._getframe().f_code.co_filename
    before_fork, after_fork, fork_done = (Hook(_ctypes.dlsym(library, "PyOS_" + name)) for name in ("BeforeFork", "AfterFork_Child", "AfterFork_Parent"))
    try:
        rseq, rseq_size = c_long.from_address(_ctypes.dlsym(library, "__rseq_offset")).value, 32
    except OSError:  # a C library that does not use rseq
        rseq = rseq_size = 0
    try:
        malloc_trim = Syscall(_ctypes.dlsym(library, "malloc_trim"))
    except OSError:  # a C library without it
        malloc_trim = None
    control, page = _socket.socket(fileno=3), posix.sysconf("SC_PAGESIZE")
    facts = control.recv(1 << 17)
    control.detach()
    nr_mmap, nr_mprotect, stays = (word(facts, at) for at in range(4, 16, 4))
    files, code = word(facts, 16, 8), facts[24:]
    home = posix.open("/proc/self/ns/pid", posix.O_RDONLY | posix.O_CLOEXEC)
    known_again = rehearsed = None
    sample = "/proc/self/fd/5"
    changed = {}  # environment variables that packages changed: name to (old, new)
    plans = {}    # the results of parse()
    large_pages()
    area = place_code()
    serving, received = area + 0xC000, (c_char * 0x40000).from_address(area + 0x40000)  # struct serving; a packet
    for at, value in (8, _ctypes.dlsym(library, "fork")), (16, 3), (24, home), (32, rseq), (40, rseq_size), (48, files), (328, _ctypes.dlsym(library, "PyOS_AfterFork_Child")):
        c_long.from_address(serving + at).value = value
    spans = reads = c_chars(b"")
    argc = len(sys.argv)
    for name in set(sys.modules) - had:
        del sys.modules[name]
    sys.path_importer_cache.pop(sys.path[0], None)
    del main["serve"]
    main["wait"] = wait
    # Each function of a library is looked up at its first call, in a fork with page faults. So the zygote calls those that forks call.
    posix.getpid()
    key = c_chars(bytes(64))  # a Py_tss_t
    for name in "create", "delete":
        Code(_ctypes.dlsym(library, "PyThread_tss_" + name))(_ctypes.addressof(key), 0, 0, 0, 0)
    Keep(_ctypes.dlsym(library, "Py_IncRef"))((sys._getframe(1).f_code, *locals().values()))  # a fork that destroys these copies their pages
    gc.collect()
    gc.freeze()
    trim()


type(serve)(serve.__code__, {"__builtins__": __builtins__, "main": globals()})()
