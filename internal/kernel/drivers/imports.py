# Imports packages of sets, in a fork of a zygote in a sandbox of its own. After this the
# fork's memory is saved. Forks that run programs load it, and each calls "again" before
# it runs its program. The packages are imported as by a program: with the driver's paths,
# and with the work of "site" at the first import.
def imports():
    import sys
    first = main["again"]
    sets = [place + "/site-packages" for place in "@sets@"]
    if first.paths is False:
        import posix
        Later, places, sys.path[1:] = first.finder, first.places, first.library  # sets come before places
        "@places.py@"
    for name in "@modules@":
        try:
            __import__(name)
        except ImportError:
            if "." not in name:
                raise

    class Caches:
        def find_spec(self, name, path=None, target=None):
            if name == "matplotlib":
                sys.meta_path.remove(self)
                names = dict(globals(), sys=sys)
                exec(text, names)
                names["fill_caches"](sets)

    def reseed():
        """Reseeds random generators that were seeded when they were imported, and renews other state that must
        differ between processes. Python's "random" reseeds itself in every fork; "secrets", "uuid" and numpy's
        default_rng ask the kernel each time."""
        modules = sys.modules
        if "numpy.random" in modules:
            modules["numpy.random"].seed()
        if "_ssl" in modules:  # OpenSSL's generator
            modules["_ssl"].RAND_add(modules["posix"].urandom(48), 48.0)
        if "tempfile" in modules:
            modules["tempfile"]._name_sequence = None
        if "uuid" in modules:
            modules["uuid"]._node = modules["uuid"]._last_timestamp = None
        main_thread = getattr(modules.get("threading"), "_main_thread", None)
        if hasattr(main_thread, "_set_native_id"):  # the process that was saved had another
            main_thread._set_native_id()
        process = modules.get("multiprocessing.process")
        if process:
            process._current_process._config["authkey"] = process.AuthenticationString(modules["posix"].urandom(32))

    def loaded():
        """Prepares a process that has loaded the image for its only program."""
        reseed()
        if "matplotlib" not in sys.modules:
            sys.meta_path.insert(0, Caches())

    def again():
        return first()

    def typical():
        """Does what programs often do first, and returns the text of a small program. They show which pages programs use;
        what they do is lost."""
        loaded()
        frames()
        if "pandas" in sys.modules:
            return b"import pandas, numpy\nprint(pandas.DataFrame({'a': numpy.ones(9)}).a.sum())\n"

    def frames(texts=True):
        """Does with pandas what programs often do first, with texts or with numbers only."""
        if "pandas" in sys.modules:
            exec("import numpy\nimport numpy as np\nimport pandas as pd\nfrom pandas import DataFrame", {})
            a, b, values = ("a", "b", "xyz") if texts else (0, 1, (1, 2, 3))
            frame = sys.modules["pandas"].DataFrame({a: sys.modules["numpy"].ones(9), b: list(values) * 3})
            column = frame.a if texts else frame[a]
            frame[column > 0].groupby(b)[a].mean().sum(), column.sum(), str(frame), frame.to_csv()

    def counted():
        """Reports whether memory that this process only maps counts toward a limit."""
        with open("/proc/self/limits") as limits, open("/proc/sys/vm/overcommit_memory") as strict:
            return "unlimited" not in [line for line in limits if line.startswith("Max data size")][0] or strict.read(1) == "2"

    def mapped():
        """Returns how many pages this process may write to, used or not."""
        with open("/proc/self/statm") as file:
            return int(file.read().split()[5])

    def warm():
        """Fills caches that the first program would fill, and lets the interpreter specialize the code of packages. A
        child does it first: a process that has threads or open files cannot be saved. Allocators of texts may reserve much
        memory for later, which every fork would have. Where that counts toward a limit, there are no texts."""
        import posix
        pid = posix.fork()
        if pid == 0:
            failed = 1
            try:
                import warnings
                warnings.simplefilter("error")  # a warning that is given here would not be given to programs
                before, pages = posix.listdir("/proc/self/fd"), mapped()
                texts = not counted()
                frames(texts)
                large = not texts and mapped() - pages > 1 << 12
                failed = large or len(posix.listdir("/proc/self/task")) != 1 or posix.listdir("/proc/self/fd") != before
            finally:
                posix._exit(failed)
        if posix.waitpid(pid, 0)[1] == 0:
            texts = not counted()
            for _ in range(16):
                frames(texts)

    again.paths, again.state, again.typical, again.loaded = True, first.state, typical, loaded
    if first.paths is False:
        first.known.update(sys.modules)
    main["again"] = again
    del main["imports"]
    if "pandas" in sys.modules:
        warm()
    import gc
    gc.collect()
    gc.freeze()  # a collection in a fork does not write to shared pages


type(imports)(imports.__code__, {"__builtins__": __builtins__, "main": globals(), "driver": imports.__code__.co_filename, "text": "@later.py@", "adapt": "@adapt.py@"})()
