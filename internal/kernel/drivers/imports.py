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

    def again():
        reseed()
        if "matplotlib" not in sys.modules:
            sys.meta_path.insert(0, Caches())
        return first()

    def typical():
        """What programs often do first. It shows which pages they use; what it does is lost."""
        again()
        if "pandas" in sys.modules:
            exec("import numpy\nimport numpy as np\nimport pandas as pd\nfrom pandas import DataFrame", {})
            frame = sys.modules["pandas"].DataFrame({"a": sys.modules["numpy"].ones(9), "b": ["x", "y", "z"] * 3})
            frame[frame.a > 0].groupby("b").a.mean().sum(), frame.a.sum(), str(frame), frame.to_csv()

    again.paths, again.state, again.typical = True, first.state, typical
    if first.paths is False:
        first.known.update(sys.modules)
    main["again"] = again
    del main["imports"]
    import gc
    gc.collect()
    gc.freeze()  # a collection in a fork does not write to shared pages


type(imports)(imports.__code__, {"__builtins__": __builtins__, "main": globals(), "driver": imports.__code__.co_filename, "text": "@later.py@", "adapt": "@adapt.py@"})()
