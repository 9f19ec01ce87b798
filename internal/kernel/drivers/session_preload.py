# Runs in an interpreter that is going to be forked for sessions, before it waits. It
# imports what the driver does in every session, but nothing else: what a cell imports may
# be a module of the user's. imports.py adds packages.
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
    known = posix.environ.get(b"PYTHONPATH")

    def again():
        if known:  # which is not in the environment that a fork is given
            posix.environ[b"PYTHONPATH"] = known
            posix.putenv(b"PYTHONPATH", known)
        return names

    again.paths = None  # they are set
    del main["boot"]
    main["again"] = again
    gc.collect()
    gc.freeze()  # a collection in a fork does not write to it


boot()
