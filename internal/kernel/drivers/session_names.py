# Loads the driver of a session into a namespace of its own. Parts that it does not need at once are texts.
names = {"__builtins__": dict(__builtins__.__dict__), "__name__": "sandboxmcp", "main": main, "driver": boot.__code__.co_filename, "texts": "@texts@"}
exec(compile("@session.py@", names["driver"], "exec"), names)
