# Imports packages in an interpreter that is going to be forked, as a program would:
# with the driver's paths, and with what "site" does when the first of them is looked
# for. What a fork has to do for itself is left to boot.py as "again".
def preload():
    import posix, sys
    sets, modules = "@sets@", "@modules@"
    sets = [place + "/site-packages" for place in sets]
    "@paths.py@"
    for name in modules:
        __import__(name)
    import gc, os

    class Caches:
        def find_spec(self, name, path=None, target=None):
            if name == "matplotlib":
                sys.meta_path.remove(self)
                names = dict(globals(), sys=sys)
                exec(text, names)
                names["fill_caches"](sets)

    def again():
        os.environ._data.clear()
        os.environ._data.update(posix.environ)
        if "numpy.random" in sys.modules:  # which was seeded once for all
            sys.modules["numpy.random"].seed()
        if "matplotlib" not in sys.modules:
            sys.meta_path.insert(0, Caches())

    del main["preload"]
    main["again"] = again
    gc.collect()


type(preload)(preload.__code__, {"__builtins__": __builtins__, "main": globals(), "text": "@later.py@"})()
