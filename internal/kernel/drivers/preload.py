# Runs in an interpreter that is going to be forked, before it waits. It imports nothing
# but the interpreter's own modules: this interpreter may enter every sandbox. What a
# fork has to do for itself is left to boot.py as "again". imports.py adds packages.
def preload():
    import posix, sys
    there = set(sys.modules)
    import _ctypes, _io, atexit, builtins, gc

    class c_long(_ctypes._SimpleCData):
        _type_ = "l"

    class Flush(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = c_long
        _argtypes_ = c_long,

    fflush = Flush(_ctypes.dlsym(_ctypes.dlopen(None, 2), "fflush"))
    for name in set(sys.modules) - there:  # nothing but what any interpreter has loaded
        del sys.modules[name]
    known = set(sys.modules)
    register, unregister, collect = atexit.register, atexit._clear, gc.collect

    def again():
        ended.how = None
        return ended

    def theirs(module):
        """Whether a module is the program's own: neither the interpreter's nor of a package."""
        name, file = getattr(module, "__name__", None), getattr(module, "__file__", None)
        return type(name) is type(file) is str and name.partition(".")[0] not in sys.stdlib_module_names and "-packages/" not in file

    # An interpreter takes everything apart before it ends. A fork would first make the
    # memory of all that its own, which takes longer than many programs. So what the
    # program made is ended as ever, by nobody's knowing it, and the rest with the process.
    def ended():
        how, code = ended.how, 1
        if isinstance(how, KeyboardInterrupt):
            return  # ends by the signal, which is the interpreter's own affair
        if how is None:
            code = 0
        elif isinstance(how, int):
            code = how & 255 if -1 << 63 <= how < 1 << 63 else 255
        try:
            ended.how = how = builtins._ = sys.last_type = sys.last_value = sys.last_traceback = None
            unregister()
            for name in [name for name, m in sys.modules.items() if name not in known and theirs(m)] + ["__main__"]:
                module = sys.modules.pop(name, None)
                for value in list(vars(module).values()):  # before the collector closes what it writes to
                    if isinstance(value, _io._IOBase) and not value.closed:
                        value.flush()
                module = value = None
            collect()
            for stream in sys.stdout, sys.stderr:
                if stream is not None and not stream.closed:
                    stream.flush()
            fflush(0)
        except BaseException:
            return  # the interpreter finds the same, and tells of it
        posix._exit(code)

    ended.how = KeyboardInterrupt()  # until a program runs, an interpreter ends as any other
    register(ended)  # the first that is registered is the last that is called: packages may register more when they are imported
    again.paths, again.known = False, known
    del main["preload"]
    main["again"] = again
    collect()


type(preload)(preload.__code__, {"__builtins__": __builtins__, "main": globals()})()
