# The driver of Python sessions. It reads cells from the private channel, runs them one
# after the other in __main__, and reports how each ended. interpreter.go describes the
# protocol.
#
# The driver has a namespace of its own, so that __main__ holds only the user's names.
# All parts are compiled under the driver's file name, by which its frames are recognized
# and removed from tracebacks. The name contains "importlib" and "_bootstrap", so that the
# warnings module skips them. Parts that most sessions do not need are kept as text.
# surroundings.py continues this file in the same namespace.
#
# A cell can be interrupted only while it runs: the handler of SIGINT is the program's
# during a cell, and does nothing between cells.
import posix
import sys
import _signal
import builtins
import os
from _ast import Interactive
from _signal import SIGINT, default_int_handler, signal
from _thread import RLock, get_ident

lock = RLock()
environ = os.environ
parts = set()


class Gone(Exception):
    """The program has replaced the channel's descriptors, or the server has closed the channel."""


# Signals whose handlers may raise. If one arrives between cells, its handler runs in the next cell.
HELD = tuple(getattr(_signal, n) for n in ("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2", "SIGCHLD", "SIGTERM", "SIGHUP"))


class Now:
    """State of the driver."""
    id = None            # of the current cell; None: no cell
    cell = None          # the current cell, until it starts
    display = "none"
    problem = None       # the exception that ended the cell
    room = 0             # bytes that the cell may still display
    count = 0            # display frames of the cell
    handler = default_int_handler  # the program's handler of SIGINT
    handlers = {}        # the program's handlers of HELD signals
    held = set()         # signals that arrived between cells
    armed = False        # the program's handlers are installed
    interrupted = False  # SIGINT arrived while a frame was written
    loop = None          # event loop for top-level await
    env = {}             # old values of variables that the cell sets
    stdin = None         # the driver's sys.stdin
    ends = ()            # functions to call after the cell
    remembered = 0       # size of all kept cell texts
    tries = 0            # failed attempts to end the cell
    values = ()          # _, __ and ___, unless the program uses these names itself


now = Now()
waiting = []  # display frames of threads that are sent in the next cell


def need(part):
    """Compiles a part of the driver when it is first needed. A signal handler may call
    this in the middle of a call, so each part is added as a whole."""
    if part in parts:
        return
    if part == "adapt.py":
        need("later.py")
    code = texts[part]
    if isinstance(code, str):
        code = compile(code, driver, "exec")
    if part == "later.py":
        names = {"__builtins__": __builtins__, "__name__": "sandboxmcp", "driver": driver, "library": globals().get("library")}
        exec(code, names)
        globals().update((n, names[n]) for n in ("FRAME", "all_lines", "data_of", "error_words", "fill_caches", "forms", "ours", "shown_text", "strip", "syntax_words"))
    else:
        exec(code, globals())
    parts.add(part)


# -- the channel

def ours_still(fd):
    """Whether descriptor 3 or 4 is still the channel that this process was started with."""
    try:
        seen, given = posix.fstat(fd), channel[fd]
    except OSError:
        return False
    return (seen.st_dev, seen.st_ino, posix.getpid()) == (given.st_dev, given.st_ino, pid)


def forget():
    """Closes the channel in a child that the program has forked."""
    for fd, given in channel.items():
        try:
            seen = posix.fstat(fd)
            if (seen.st_dev, seen.st_ino) == (given.st_dev, given.st_ino):
                posix.close(fd)
        except OSError:
            pass


def note(number, frame):
    now.interrupted = True


def idle(number, frame):
    pass


def send(kind, words="", done=False):
    """Writes one frame completely or not at all. An interrupt is delivered after it."""
    if posix.getpid() != pid:
        return False
    mine = get_ident() == main_thread and now.armed
    if mine:
        handler = signal(SIGINT, note)
    try:
        with lock:
            if not ours_still(3):
                return False
            if now.id is None and kind == "display":
                return False
            text = '{"type":"%s"%s%s}' % (kind, "" if now.id is None else ',"id":%d' % now.id, words)
            data = len(text).to_bytes(4, "big") + text.encode("ascii")
            if done:
                now.id = None
            wrote = posix.write(3, data)
            while wrote < len(data):
                wrote += posix.write(3, memoryview(data)[wrote:])
            return True
    except OSError:
        return False
    finally:
        if mine:
            signal(SIGINT, default_int_handler if handler is None else handler)
            if now.interrupted:
                now.interrupted = False
                if callable(handler):
                    handler(SIGINT, None)


def show(data):
    """Sends a display frame in the current cell, or in the next one if none runs."""
    if data is None or posix.getpid() != pid:
        return
    if now.id is None or lock._is_owned():  # no cell, or a signal handler that interrupts send
        if len(waiting) < 8:
            waiting.append(data)
        return
    if now.room < 0 or now.count > 256:  # the last frame was too much: the server has left it out, and says so
        return
    now.room -= len(data)
    now.count += 1
    if not send("display", ',"data":' + data) and now.id is None:
        waiting.append(data)  # called by a thread, and the cell has just ended


def receive(count):
    got = []
    while count:
        more = posix.read(4, min(count, 1 << 20)) if ours_still(4) else b""
        if not more:
            raise Gone
        got.append(more)
        count -= len(more)
    return b"".join(got)


def fetch():
    try:
        cell = {}
        while cell.get("type") != "execute":  # an answer to a cell that did not wait for it is dropped
            cell = parse_json(receive(int.from_bytes(receive(4), "big")).decode("utf-8"))
        now.id, now.cell = cell["id"], cell
    except Exception as error:
        raise Gone from error


def reader():
    """Returns a JSON parser; if possible without importing the json module."""
    try:
        from _json import make_scanner
    except ImportError:
        from json import loads
        return loads

    class Context:
        strict, object_hook, object_pairs_hook = True, None, None
        parse_float, parse_int, parse_constant, memo = float, int, float, {}

    scan = make_scanner(Context)
    return lambda text: scan(text, 0)[0]


# -- interrupts

def arm():
    now.armed = True
    for number, handler in now.handlers.items():
        if _signal.getsignal(number) is hold:
            signal(number, handler)
    signal(SIGINT, now.handler)


def deliver():
    """Calls the program's handlers for signals that arrived between cells. If one raises,
    the error is printed and the cell runs all the same."""
    while now.held:
        number = now.held.pop()
        try:
            now.handlers.get(number, idle)(number, None)
        except Exception as error:
            need("later.py")
            sys.stderr.write("\n".join(all_lines(error, strip(error.__traceback__))) + "\n")
    now.handlers.clear()


def disarm():
    handler = signal(SIGINT, idle)
    now.armed = False
    if handler is not idle and handler is not note:
        now.handler = default_int_handler if handler is None else handler
    for number in HELD:
        handler = _signal.getsignal(number)
        if callable(handler) and handler is not hold:
            now.handlers[number] = handler
            signal(number, hold)


def hold(number, frame):
    now.held.add(number)


# -- running

def quiet(value):
    """Whether the expression is a call such as f.write(...), whose value, a number of bytes, is not worth showing."""
    return (type(value).__name__ == "Call" and type(value.func).__name__ == "Attribute"
            and value.func.attr in ("write", "write_text", "write_bytes"))


def parse(text, name):
    """Returns the syntax tree of a cell and the flags to compile it with."""
    flags = 0x2000 if "await" in text or "async" in text else 0  # top-level await
    try:
        return compile(text, name, "exec", 0x400 | flags, True), flags
    except SyntaxError:
        need("magics.py")
        even = dedented(text)
        changed = transform(even)
        if changed == text:
            raise
        if even != text:
            remember(name, even)  # so that tracebacks mark the right columns
    builtins.__sandbox_magic__ = magic
    return compile(changed, name, "exec", 0x400 | flags, True), flags


def compiled(text, name):
    """Returns the code of a cell, and separately that of its last expression if its value is shown."""
    tree, flags = parse(text, name)
    last = None
    if now.display != "none" and tree.body and type(tree.body[-1]).__name__ == "Expr" and not quiet(tree.body[-1].value):
        last = tree.body.pop()
    code = compile(tree, name, "exec", flags, True)
    if last is not None:
        last = compile(Interactive([last]), name, "single", flags | code.co_flags & 0x1FE0000, True)
    return code, last


"@lacks.py@"


def mend(codes, text, name):
    """Binds the known names that a cell lacks as globals; see fix.py."""
    found = lacks(codes, text, main)
    if not found:
        return
    names, code = {"__name__": "sandboxmcp", "__builtins__": __builtins__}, texts["fix.py"]
    exec(compile(code, driver, "exec") if isinstance(code, str) else code, names)
    done = names["bind"](compile(text, name, "exec", 0x2400, True), found, main)
    if done:
        send("fixed", ',"fixes":["%s"]' % '","'.join(done))


def carry_out(code):
    if not code.co_flags & 0x80:  # a coroutine
        exec(code, main)
        return
    need("later.py")
    ours("asyncio")
    asyncio = sys.modules["asyncio"]
    if now.loop is None or now.loop.is_closed():
        now.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(now.loop)
    loop = now.loop
    # Without a wakeup descriptor a signal that arrives just before the loop waits would not wake it.
    wake = getattr(loop, "_csock", None)
    before = _signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False) if wake else -1
    try:
        task = loop.create_task(eval(code, main))
        try:
            loop.run_until_complete(task)
        except BaseException:
            if not task.done():  # the loop was interrupted
                task.cancel()
                quietly(loop.run_until_complete, asyncio.wait([task], timeout=0.5))
            raise
    finally:
        if wake and not getattr(loop, "_signal_handlers", None):
            _signal.set_wakeup_fd(before)


def run(code, last):
    carry_out(code)
    if last is None:
        return
    hook = sys.displayhook

    def displayhook(value):
        sys.displayhook = hook
        show_result(value)

    sys.displayhook = displayhook
    try:
        carry_out(last)
    finally:
        if sys.displayhook is displayhook:
            sys.displayhook = hook


def perform():
    """Runs the cell. An interrupt may end this function at any point; conclude does the rest."""
    cell, now.cell = now.cell, None
    now.problem, now.room, now.count, now.display, now.ends = None, 8 << 20, 0, cell["display"], []
    text, name = cell["code"], "<cell %d>" % now.id
    if "adapt.py" in parts:
        displayed.clear()
    try:
        arm()
        deliver()
        while waiting:
            show(waiting.pop(0))
        remember(name, text)
        make_ready(cell)
        try:
            code, last = compiled(text, name)
        except (SyntaxError, ValueError) as error:  # ValueError: NUL bytes, before Python 3.12
            need("later.py")
            send("syntax", "," + syntax_words(error if isinstance(error, SyntaxError) else SyntaxError(str(error))))
            raise
        if not cell.get("plain"):
            try:
                mend([code, last] if last else [code], text, name)
            except Exception:  # the tree nests too deeply: the cell runs as it is
                pass
        send("start")
        run(code, last)
    except BaseException as error:
        now.problem = error
    try:
        if "matplotlib.pyplot" in sys.modules and posix.getpid() == pid:
            need("adapt.py")
            show_figures(sys.modules["matplotlib.pyplot"])
        for end in now.ends:
            end()
    except BaseException as error:
        now.problem = now.problem or error


def make_ready(cell):
    stdin = cell.get("stdin")
    if stdin is not None:
        from binascii import a2b_base64
        stdin = a2b_base64(stdin)
    feed(stdin)
    set_env(cell.get("env") or {})
    see_packages(cell.get("packages") or [])
    main.pop("__warningregistry__", None)


def report(error):
    """Reports an exception on stderr and on the channel."""
    need("later.py")
    seen, at = set(), error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        at.__traceback__ = strip(at.__traceback__)
        at = at.__cause__ or at.__context__
    at = error.__traceback__
    while at is not None and at.tb_frame.f_globals is not main:
        at = at.tb_next  # skip frames of asyncio
    if at is not None:
        error.__traceback__ = at
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.last_exc = error
    try:
        lines = all_lines(error, error.__traceback__)
    except Exception:
        lines = [type(error).__name__]
    if sys.excepthook is sys.__excepthook__:
        if sys.stderr is not None:
            sys.stderr.write("\n".join(lines) + "\n")
    else:
        sys.excepthook(type(error), error, error.__traceback__)
    send("error", "," + error_words(error, lines))


def exit_code(error):
    if not isinstance(error, SystemExit):
        return 130 if type(error) is KeyboardInterrupt else 1
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xff
    if sys.stderr is not None:
        print(code, file=sys.stderr)
    return 1


def quietly(do, *arguments):
    try:
        do(*arguments)
    except BaseException:
        pass


def conclude():
    """Ends the cell: reports how it ended, and restores the environment and standard input."""
    problem, now.problem, code = now.problem, None, 0
    if problem is not None:
        code = 1
        if not isinstance(problem, SystemExit):
            quietly(report, problem)
        try:
            code = exit_code(problem)
        except BaseException:
            pass
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            quietly(stream.flush)
    if posix.getpid() != pid:  # a child that the cell has forked and that has returned: it exits
        raise SystemExit(code)
    quietly(unset_env)
    quietly(feed, None)
    exit = ',"exit":%d' % code if code > 1 or isinstance(problem, SystemExit) else ""
    if not send("done", ',"ok":%s%s' % ("false" if code else "true", exit), True):
        if not (ours_still(3) and ours_still(4)) and sys.__stderr__ is not None:
            quietly(posix.write, 2, b"The program closed the interpreter's own channel (descriptors 3 and 4), so the interpreter ends\n")
        raise SystemExit(code or 1)


def step():
    """Ends the previous cell if that was not completed, and runs the next. If an interrupt
    or a signal handler of the program raises at any point, the current cell ends early
    and the interpreter goes on."""
    try:
        disarm()
        if now.id is not None and now.cell is None:
            now.tries += 1
            if now.tries > 100:  # every attempt was interrupted or failed
                raise Gone
            conclude()
        now.tries = 0
        if now.cell is None:
            fetch()
        perform()
    except Gone:
        raise
    except BaseException as error:
        if posix.getpid() != pid or now.id is not None and not ours_still(3):
            raise
        now.problem = now.problem or error


def serve():
    send("ready")
    while True:
        try:
            step()
        except Gone:
            return
        except KeyboardInterrupt:
            pass


def find_packages(sets):
    """Adds package sets and the machine's packages to sys.path; boot.py says why in this way."""
    text, state = texts["later.py"], None
    if not sys.flags.no_site:
        if sets:
            names = {"__builtins__": __builtins__, "__name__": "sandboxmcp"}
            exec(text, names)
            names["see"](sets)
        return
    sets = [place + "/site-packages" for place in sets]
    if sets:
        environ["PYTHONPATH"] = ":".join(sets)
    "@paths.py@"
    "@places.py@"


def find_own_packages():
    """Adds the directory into which "pip install --user" installs to sys.path. It is made now, because Python does not
    look again into a directory that was missing at the first import."""
    if sys.prefix != sys.base_prefix:
        return
    place = "%s/.local/lib/python%d.%d/site-packages" % (environ.get("HOME", "/tmp"), *sys.version_info[:2])
    try:
        os.makedirs(place, exist_ok=True)
    except OSError:
        return
    at = [where.endswith("-packages") and not where.startswith(tuple(own_sets)) for where in sys.path] + [True]
    if place not in sys.path:
        sys.path.insert(at.index(True), place)


def prepare(sets):
    """Does everything that is the same for all sessions. A zygote calls it before it forks."""
    global parse_json, own_sets
    parse_json = reader()
    own_sets = sets or ["/nowhere"]
    for name in "__file__", "__cached__":
        main.pop(name, None)
    main["__loader__"] = sys.modules["_frozen_importlib"].BuiltinImporter
    find_packages(sets)
    sys.meta_path.insert(0, Finder())
    builtins.display = display


def begin():
    global channel, null, library, main_thread, pid
    main_thread, pid = get_ident(), posix.getpid()
    null = posix.stat("/dev/null").st_rdev
    try:
        posix.set_inheritable(3, False)
        posix.set_inheritable(4, False)
        channel = {3: posix.fstat(3), 4: posix.fstat(4)}  # 3 is written, 4 is read
    except OSError:
        raise SystemExit("there is no channel to take cells from")
    sys.argv, sys.path[0] = [""], ""
    find_own_packages()
    library = sys.path[1:]
    if "later.py" in parts:  # the zygote has compiled it, and does not know this path
        ours.__globals__["library"] = library
    posix.register_at_fork(after_in_child=forget)
    if sys.stdout:
        sys.stdout.reconfigure(line_buffering=True)
    now.stdin = sys.stdin
    feed(None)
    signal(_signal.SIGURG, idle)  # see PlanInterpreter
    disarm()
    now.handler = default_int_handler
    import gc
    if hasattr(gc, "freeze"):
        gc.freeze()
