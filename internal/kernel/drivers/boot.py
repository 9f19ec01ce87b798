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
def boot():
    import posix, sys
    driver, display, path = sys.argv
    sys.argv = [path]
    library = sys.path[1:]
    sys.path[0] = posix.getcwd()
    del main["boot"]
    main["__file__"] = main["__loader__"].path = path
    begun = strict = channel = None
    try:
        posix.set_inheritable(3, False)
        channel = posix.fstat(3), posix.getpid()
        if display == "none":  # where nothing is refused, the program begins now
            posix.write(3, b'\0\0\0\x10{"type":"start"}')
    except OSError:
        pass
    if sys.stdout:
        sys.stdout.reconfigure(line_buffering=True)
    try:
        if display == "none":
            from _imp import _fix_co_filename
            from _warnings import filters

            def begin(frame, event, _):
                nonlocal begun
                if event == "call" and frame.f_globals is main:
                    sys.setprofile(None)
                    filters.remove(strict)
                    _fix_co_filename(frame.f_code, path)
                    begun = True

            with open(path, "rb") as file:
                code = file.read()
            strict = "error", None, SyntaxWarning, None, 0
            filters.insert(0, strict)
            sys.setprofile(begin)
            exec(code, main)
    except SystemExit:
        raise
    except BaseException as error:
        if begun:
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


type(boot)(boot.__code__, {"__builtins__": __builtins__, "main": globals(), "text": "@later.py@", "slow": "@slow.py@"})()
