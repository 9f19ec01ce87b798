# Runs the user's program as __main__. To be fast, it imports only modules that every
# interpreter has loaded, and keeps the rest of the driver as text until it is needed.
#
# The first call of the builtin compile() creates all classes of the syntax tree, which
# takes a twelfth of a small run. exec() does not. The driver therefore passes the
# program's text to exec(). A profile function sees the start of the program's code and
# sets its file name. If anything goes wrong before that start (a syntax error, a syntax
# warning), slow.py compiles the program again.
#
# The file's name contains "importlib" and "_bootstrap". The warnings module therefore
# takes frames of the driver for the interpreter's own and skips them. The function has
# its own globals, so that a program that redefines "exec" does not change the driver.
#
# The interpreter is started without "site", whose .pth files and sitecustomize take up
# to three quarters of a small program's time. paths.py and places.py set what every program
# sees of it. The rest is done when the program first imports a module that is not in the
# standard library (site_at_last in later.py).
#
# Package sets come before other packages: the packages of a set fit together, and the
# machine's package of the same name may not fit. Interpreters that the program starts
# find the sets by PYTHONPATH. It is set only here, because otherwise this interpreter
# would search the sets for every module of the standard library.
#
# All objects that exist now live until the interpreter ends. gc.freeze() makes the last
# collections skip them, which saves a sixteenth of a small run. The program gets a new
# __main__ that is created after that, and the driver keeps no reference to it. It is
# thus destroyed at the end as usual; otherwise files that the program left open would
# lose their last bytes.
#
# The file holds this text or its compiled form, which saves a fourteenth of a small run.
# Nothing here may therefore depend on line numbers.
#
# If the server sends a guard, it judges the bytes of the program before anything of the
# program can run. Directories of the program and of packages are out of sys.path meanwhile:
# an encoding that the program declares may import modules of the standard library. The
# server counts a refusal only before the frame "try", so neither a program that runs nor a
# module that is imported for it can change what was said of it.
#
# A zygote runs this up to "wait", for a program without sets. In a fork, "wait" returns the
# display and the path of the program, or None if more is different. Then the loop runs a
# second time.
#
# The program's directory is in sys.path only from the frame "start" on: an encoding that the
# program declares imports modules, and a file of that directory could say that the program was
# not compiled. So could the program itself, if it has the name of a module that paths.py imports:
# the directory of the program's file is out of sys.path there, too.
#
# An interpreter that is started ahead of a request waits just before it opens the program. It
# executes this file with the first of two constants replaced by the second one, in the text or in
# the compiled form, so that both wait. A program sees the difference only in these constants of the
# driver's code, and in the age of its process. If the program executes sys.orig_argv, this file runs
# again. There is no word then, and no channel.
#
# An interpreter destroys all its objects before it ends, which takes a twelfth of a small run. That cannot be seen if no
# object that was made since gc.freeze() does anything when it is destroyed. Then "leave" ends the process after a program
# that ended well. An extension module may have text in the buffers of the C library, which only the usual end writes.
#
# A program that uses a known module without importing it gets the name as a global
# (lacks.py, fix.py). Its text stays as it is. slow.py does that.
def boot():
    import gc, posix, sys
    from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader
    from _weakref import ReferenceType
    state = first["again"].state if "again" in first else {}  # preload.py sets "again" in a zygote
    directory = sys.path.pop(0)
    if sys.flags.no_site:
        "@paths.py@"
    else:
        class Later:
            def find_spec(self, name, path=None, target=None):
                if name in ("pandas", "matplotlib.pyplot", "IPython"):
                    names = dict(globals(), state=state)
                    exec(text, names)
                    sys.meta_path[sys.meta_path.index(self)] = adapter = names["Adapter"]()
                    return adapter.find_spec(name, path, target)

        sys.meta_path.insert(0, Later())
    sys.path.insert(0, directory)
    begun = strict = channel = found = None

    "@lacks.py@"

    def start():
        sys.path.insert(0, home)
        if channel:
            try:
                posix.write(3, b'\0\0\0\x10{"type":"start"}')
            except OSError:
                pass

    from _imp import _fix_co_filename
    from _warnings import filters
    there = "atexit" in sys.modules
    from atexit import _ncallbacks
    if not there:  # as in every interpreter
        del sys.modules["atexit"]

    def leave():
        """Ends the process if the interpreter would do nothing else that can be seen."""
        try:
            made = gc.get_objects()
            if "threading" in sys.modules or _ncallbacks() or gc.get_debug() or len(filters) != warned or len(made) > 10000:
                return
            module, bases, names, silent = type(sys), type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__, set()
            for thing in made:
                kind = type(thing)
                if kind in silent:
                    continue
                if kind is module:
                    if type(thing.__dict__.get("__loader__")) is ExtensionFileLoader:
                        return
                elif kind is ReferenceType:
                    if thing.__callback__ is not None:
                        return
                else:
                    for base in bases(kind):
                        if base is module or base is ReferenceType or "__del__" in names(base):
                            return
                    if type in bases(kind):  # an instance of a class may be unknown to the collector
                        if "__del__" in names(thing):
                            return
                    else:
                        silent.add(kind)
            for stream in streams:
                stream.flush()
        except BaseException:
            return  # the interpreter meets the same error and reports it
        posix._exit(0)

    def begin(frame, event, _):
        nonlocal begun, found
        if event == "call" and frame.f_globals is main:
            sys.setprofile(None)
            if display != "figures":
                found = lacks([frame.f_code], code, main)
                if found:
                    raise NameError
            filters.remove(strict)
            _fix_co_filename(frame.f_code, path)
            start()
            begun = True

    if sys.stdout:
        sys.stdout.reconfigure(line_buffering=True)
    del first["boot"]
    wait, again, library, seen = first.pop("wait", None), first.pop("again", None), sys.path[1:], []
    while True:
        ended = again and again()
        display, path, *sets = sys.argv[1:]
        if display[:6] == "guard ":
            from _frozen_importlib_external import MAGIC_NUMBER
            display, place = display[6:], sys.path.pop(0)
            with open(path.rpartition("/")[0] + "/.sandboxmcp_guard.py", "rb") as file:
                code = file.read()
            if code[:4] == MAGIC_NUMBER:
                import marshal
                code = marshal.loads(code[16:])
            names = {"__name__": "sandboxmcp", "__builtins__": __builtins__}
            exec(code, names)
            with open(path, "rb") as file:
                issues = names["refused"](file.read())
            if issues:
                issues = ('{"type":"refused","issues":%s}' % issues).encode("ascii")
                posix.write(3, len(issues).to_bytes(4, "big") + issues)
                posix._exit(1)
            posix.write(3, b'\0\0\0\x0e{"type":"try"}')
            sys.path.insert(0, place)
            code = names = issues = file = place = None
        sets = [place + "/site-packages" for place in sets]
        if sets:
            known = ":".join(sets)
            if "os" in sys.modules:
                sys.modules["os"].environ["PYTHONPATH"] = known
            else:  # os builds its environ from posix.environ
                known = known.encode("utf-8", "surrogateescape")
                posix.environ[b"PYTHONPATH"] = known
                posix.putenv(b"PYTHONPATH", known)
        sys.argv = [path]
        sys.path[0] = "/mnt/data" if wait else posix.getcwd()
        if again and again.paths:
            pass
        elif sys.flags.no_site:
            "@places.py@"
        else:
            at = [place.endswith("-packages") for place in sys.path] + [True]
            at = at.index(True)
            sys.path[at:at] = sets
        gc.freeze()
        module = type(sys)("__main__")
        main = module.__dict__
        main.update(first)
        main["__file__"] = path
        main["__loader__"] = SourceFileLoader("__main__", path)
        sys.modules["__main__"] = module
        del module
        if not wait:
            break
        again.finder, again.places, again.library = Later, places, library
        prepared, wait = wait(path, seen, again, ("none", "quiet", "results", "stdout", "figures")), None
        if prepared:
            display, path = prepared
            break
        again = first.pop("again", again)
        if not again.paths:
            sys.path[1:] = library
    library = sys.path[1:]
    try:
        posix.set_inheritable(3, False)
        channel = posix.fstat(3), posix.getpid()
    except OSError:
        pass
    state.update(display=display, channel=channel, library=library)
    home = sys.path.pop(0)
    streams, warned = (sys.stdout, sys.stderr), len(filters)
    if "begins at once" == "waits for word" and channel:
        try:
            if not posix.read(4, 1):
                posix._exit(0)
            posix.close(4)
        except OSError:
            pass
    try:
        try:
            if display == "none" or display == "quiet" or display == "figures":
                code, file = b"", posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
                while part := posix.read(file, 1 << 15):
                    code += part
                posix.close(file)
                strict = "error", None, SyntaxWarning, None, 0
                filters.insert(0, strict)
                sys.setprofile(begin)
                begin = None  # it would keep the program's names
                exec(code, main)
        except SystemExit as error:
            if ended:
                ended.how = error.code
            raise
        except BaseException as error:
            if begun:
                if ended:
                    ended.how = error
                names = dict(globals(), **locals())
                exec(text, names)
                names["tell"](error)
                raise
        if not begun:
            sys.setprofile(None)
            if strict:
                filters.remove(strict)
            begin = None
            names = dict(globals(), **locals())
            exec(compile(slow, driver, "exec"), names)
            names["slowly"]()

    finally:
        end = state.get("end")
        if end:
            try:
                end()
            except Exception:
                pass
    if begun and ended and "threading" not in sys.modules and ended.handlers() == 1:
        main = None
        ended()  # the interpreter would do nothing else before it
    if begun and not ended and sys.flags.no_site and streams[0] and streams[1] and not sys.gettrace() and not sys.getprofile():
        leave()


type(boot)(boot.__code__, {"__builtins__": __builtins__, "first": globals(), "driver": boot.__code__.co_filename, "text": "@later.py@", "adapt": "@adapt.py@", "fix": "@fix.py@", "slow": "@slow.py@"})()
