# Runs in an interpreter that is going to be forked for sessions, before it waits. It
# imports what the driver does in every session, and packages of sets that the first cell
# is going to import, but nothing else: what a cell imports may be a module of the user's.
# All is compiled here whose memory forks then share.
def boot():
    import gc, posix, sys
    main = globals()
    "@session_names.py@"
    texts = names["texts"]
    for part in texts:
        texts[part] = compile(texts[part], names["driver"], "exec")
    names["prepare"]("@sets@")
    names["compiled"]("0", "<cell 0>")
    modules = "@modules@"
    for name in modules:
        __import__(name)
    known = posix.environ.get(b"PYTHONPATH")

    class Caches:
        def find_spec(self, name, path=None, target=None):
            if name == "matplotlib":
                sys.meta_path.remove(self)
                names["need"]("later.py")
                names["fill_caches"]([place + "/site-packages" for place in "@sets@"])

    def again():
        if "numpy.random" in sys.modules:  # which was seeded once for all
            sys.modules["numpy.random"].seed()
        if modules and "matplotlib" not in sys.modules:
            sys.meta_path.insert(0, Caches())
        if known:  # which is not in the environment that a fork is given
            posix.environ[b"PYTHONPATH"] = known
            posix.putenv(b"PYTHONPATH", known)
        return names

    del main["boot"]
    main["again"] = again
    gc.collect()
    gc.freeze()  # a collection in a fork does not write to it


boot()
