# The driver of a session, in names of its own, with what it does not need at once as texts.
names = {"__builtins__": dict(__builtins__.__dict__), "__name__": "sandboxmcp", "main": main, "driver": boot.__code__.co_filename, "texts": "@texts@"}
exec(compile("@session.py@", names["driver"], "exec"), names)
