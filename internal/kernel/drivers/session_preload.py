# Runs in a zygote for sessions before it waits for forks. It imports what the driver
# imports in every session and nothing else, because a cell's import may mean a module of
# the user with the same name. imports.py adds packages. It compiles all parts of the
# driver, so that forks share their memory.
def boot():
    import gc, posix, sys
    main = globals()
    "@session_names.py@"
    texts = names["texts"]
    for part in texts:
        texts[part] = compile(texts[part], names["driver"], "exec")
    names["prepare"]("@sets@")
    names["compiled"]("0", "<cell 0>")
    known = posix.environ.get(b"PYTHONPATH")

    def again():
        if known:  # the environment of a fork does not have it
            posix.environ[b"PYTHONPATH"] = known
            posix.putenv(b"PYTHONPATH", known)
        return names

    again.paths = again.state = None  # sys.path is set already
    del main["boot"]
    main["again"] = again
    gc.collect()
    gc.freeze()  # a collection in a fork does not write to shared pages


boot()
