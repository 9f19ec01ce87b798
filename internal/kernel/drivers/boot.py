# Starts the user's program in this very module, __main__. It has to cost next
# to nothing, so it imports only what every interpreter has loaded, and keeps
# the rest of the driver as text until something has to be told.
#
# The builtin compile() makes all classes of the syntax tree the first time it is
# called, for a twelfth of the time of a whole small run. So the program goes to
# exec() as it is, which does not, and the name of its file is set on the code
# when it begins, which a profile function sees. Whatever goes wrong before that
# (the syntax, a warning about it) is done over in slow.py.
#
# The file's name holds "importlib" and "_bootstrap", so that the warnings module
# takes its frames for the interpreter's own and never blames them. The function
# runs with globals of its own: what the program calls "exec" is not ours.
#
# The interpreter is started without "site", whose .pth files and sitecustomize are
# up to three quarters of a small program's time. What every program sees of it is
# set here; the rest waits until something is imported that is not the
# interpreter's own (site_at_last in later.py).
#
# Package sets stand before the other packages: what is in one was made to fit
# together, and the machine's own package of the same name may not. Interpreters
# that the program starts find them by PYTHONPATH, which is set only here: from its
# own start on this one would look into the sets for every module of the library.
#
# Whatever the interpreter has made by now lives as long as it does. Freezing it
# spares the collector's last rounds from looking at it, a sixteenth of a small run.
# The program gets a __main__ that is made after that and that nothing here keeps: it
# is ended as ever, with what it stands for. Else a file that the program leaves open
# would lose its last bytes.
#
# The file may hold this text or what the interpreter compiled of it, which
# saves a fourteenth of a small run: so nothing here may depend on where it is.
def boot():
    import gc, posix, sys
    from _frozen_importlib_external import SourceFileLoader
    display, path, *sets = sys.argv[1:]
    sets = [place + "/site-packages" for place in sets]
    again = first.pop("again", None)  # of preload.py, before this was forked
    ended = again and again()
    if sets:
        known = ":".join(sets)
        if "os" in sys.modules:
            sys.modules["os"].environ["PYTHONPATH"] = known
        else:  # which makes its own of this one
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
