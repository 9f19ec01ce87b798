# Runs in a zygote before it waits for forks. It imports standard modules only, because
# the zygote may enter every sandbox. It leaves a function "again" to boot.py, for what
# each fork has to do itself. imports.py adds packages.
def preload():
    import sys
    there = set(sys.modules)
    import _ctypes, _io, atexit, builtins, gc

    class c_long(_ctypes._SimpleCData):
        _type_ = "l"

    class Flush(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL
        _restype_ = c_long
        _argtypes_ = c_long,

    fflush, leave = (Flush(_ctypes.dlsym(_ctypes.dlopen(None, 2), name)) for name in ("fflush", "_exit"))
    compile("", "", "exec", 0x400)  # creates the classes of the syntax tree, which the first such call of a program would do
    for name in set(sys.modules) - there:  # a program sees only the modules that every interpreter has loaded
        del sys.modules[name]
    known, newest, count = set(sys.modules), None, 0
    register, unregister, collect = atexit.register, atexit._clear, gc.collect

    def again():
        nonlocal newest, count
        newest, count = next(reversed(sys.modules)), len(sys.modules)
        ended.how = None
        return ended

    def theirs(module):
        """Whether a module is a file of the program: not of the standard library and not of a package."""
        name, file = getattr(module, "__name__", None), getattr(module, "__file__", None)
        return type(name) is type(file) is str and name.partition(".")[0] not in sys.stdlib_module_names and "-packages/" not in file

    # An interpreter destroys all its objects before it ends. In a fork that would copy all
    # shared pages, which takes longer than many programs. This function destroys only the
    # objects of the program, by dropping the last references to them, and then exits. It calls
    # the C library's function by its address: posix._exit() would look it up in each fork.
    def ended():
        how, code = ended.how, 1
        if isinstance(how, KeyboardInterrupt):
            return  # the interpreter ends itself by the signal
        if how is None:
            code = 0
        elif isinstance(how, int):
            code = how & 255 if -1 << 63 <= how < 1 << 63 else 255
        try:
            ended.how = how = builtins._ = sys.last_type = sys.last_value = sys.last_traceback = None
            unregister()
            new = []
            for number, name in enumerate(reversed(sys.modules)):  # a module that is imported comes last
                if name == newest and len(sys.modules) - number == count:  # else the program has moved names
                    break
                if name not in known and theirs(sys.modules[name]):
                    new.append(name)
            for name in new[::-1] + ["__main__"]:
                module = sys.modules.pop(name, None)
                for value in list(vars(module).values()):  # before the collector closes the file below
                    if isinstance(value, _io._IOBase) and not value.closed:
                        value.flush()
                module = value = None
            collect()
            for stream in sys.stdout, sys.stderr:
                if stream is not None and not stream.closed:
                    stream.flush()
            fflush(0)
        except BaseException:
            return  # the interpreter meets the same error and reports it
        again.leave(code)

    ended.handlers = atexit._ncallbacks
    ended.how = KeyboardInterrupt()  # until a program runs, the interpreter ends normally
    register(ended)  # registered first, so called last: packages may register functions when they are imported
    again.paths, again.known, again.state, again.leave = False, known, {}, leave
    del main["preload"]
    main["again"] = again
    collect()


type(preload)(preload.__code__, {"__builtins__": __builtins__, "main": globals()})()
