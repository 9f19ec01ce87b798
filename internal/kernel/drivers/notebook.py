# Support for modules that need help in a notebook: shows figures of matplotlib, and finds
# the source of classes for inspect. Compiled when one of the modules is imported.


def patch(module):
    if module.__name__ == "inspect":
        patch_inspect(module)
    else:
        patch_pyplot(module)


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


def patch_pyplot(pyplot):
    """Makes show() display all figures and close them, as in a notebook."""
    def show(*arguments, **options):
        if posix.getpid() == pid:
            now.shown = []
            show_figures(pyplot)

    show.__doc__ = pyplot.show.__doc__
    pyplot.show = show


def picture(figure):
    """Returns a figure as a PNG that fits into a frame, or None."""
    from io import BytesIO
    size = max(*figure.get_size_inches(), 1)
    for dpi in "figure", 800 / size, 300 / size:
        out = BytesIO()
        if not figure.axes and not figure.lines and not figure.texts and not figure.images:
            figure.savefig(out, format="png", dpi=dpi)
        else:
            figure.savefig(out, format="png", dpi=dpi, bbox_inches="tight")
        if len(out.getvalue()) * 4 < FRAME * 3 - 10000:
            return out.getvalue()


def show_figures(pyplot):
    """Displays all open figures and closes them."""
    need("later.py")
    numbers = getattr(pyplot, "get_fignums", tuple)()
    try:
        for number in numbers:
            figure = pyplot.figure(number)
            if not any(figure is f for f in now.shown):
                image = picture(figure)
                show(data_of({"text/plain": repr(figure), "image/png": image} if image else {"text/plain": repr(figure)}, False))
    finally:
        if numbers:
            pyplot.close("all")
