# Makes inspect find the source of classes of cells. Compiled when inspect is imported.


def patch_inspect(inspect):
    """Makes inspect find the source of classes of cells; it cannot itself, because __main__ has no file."""
    getfile = inspect.getfile

    def in_cell(value):
        if isinstance(value, type) and value.__module__ == "__main__":
            for method in vars(value).values():
                code = getattr(getattr(method, "__func__", method), "__code__", None)
                if code is not None and code.co_filename.startswith("<cell "):
                    return code.co_filename
            from linecache import cache
            for name in sorted((n for n in cache if n.startswith("<cell ")), key=lambda n: -int(n[6:-1])):
                if any(line.split("(")[0].split(":")[0].split() == ["class", value.__name__] for line in cache[name][2]):
                    return name
        return getfile(value)

    in_cell.__name__, in_cell.__doc__ = "getfile", getfile.__doc__
    inspect.getfile = in_cell
