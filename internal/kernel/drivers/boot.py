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
# to three quarters of a small program's time. paths.py sets what every program sees of
# it. The rest is done when the program first imports a module that is not in the
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
def boot():
    import gc, posix, sys
    from _frozen_importlib_external import SourceFileLoader
    display, path, *sets = sys.argv[1:]
    sets = [place + "/site-packages" for place in sets]
    again = first.pop("again", None)  # set by preload.py if this is a fork
    ended = again and again()
    if sets:
        known = ":".join(sets)
        if "os" in sys.modules:
            sys.modules["os"].environ["PYTHONPATH"] = known
        else:  # os builds its environ from posix.environ
            known = known.encode("utf-8", "surrogateescape")
            posix.environ[b"PYTHONPATH"] = known
            posix.putenv(b"PYTHONPATH", known)
    sys.argv = [path]
    sys.path[0] = posix.getcwd()
    paths = again and again.paths
    if sys.flags.no_site and not paths:
        "@paths.py@"
    elif sets and not paths:
        at = [place.endswith("-packages") for place in sys.path] + [True]
        at = at.index(True)
        sys.path[at:at] = sets
    library = sys.path[1:]
    del first["boot"]
    begun = strict = channel = None

    def start():
        if channel:
            try:
                posix.write(3, b'\0\0\0\x10{"type":"start"}')
            except OSError:
                pass

    try:
        posix.set_inheritable(3, False)
        channel = posix.fstat(3), posix.getpid()
    except OSError:
        pass
    if sys.stdout:
        sys.stdout.reconfigure(line_buffering=True)
    gc.freeze()
    module = type(sys)("__main__")
    main = module.__dict__
    main.update(first)
    main["__file__"] = path
    main["__loader__"] = SourceFileLoader("__main__", path)
    sys.modules["__main__"] = module
    del module
    try:
        if display == "none" or display == "quiet":
            from _imp import _fix_co_filename
            from _warnings import filters

            def begin(frame, event, _):
                nonlocal begun
                if event == "call" and frame.f_globals is main:
                    sys.setprofile(None)
                    filters.remove(strict)
                    _fix_co_filename(frame.f_code, path)
                    start()
                    begun = True

            with open(path, "rb") as file:
                code = file.read()
            strict = "error", None, SyntaxWarning, None, 0
            filters.insert(0, strict)
            sys.setprofile(begin)
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
        names = dict(globals(), **locals())
        exec(compile(slow, driver, "exec"), names)
        names["slowly"]()


type(boot)(boot.__code__, {"__builtins__": __builtins__, "first": globals(), "driver": boot.__code__.co_filename, "text": "@later.py@", "slow": "@slow.py@"})()
