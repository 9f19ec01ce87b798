# Adapts packages that show values when the program imports them: pandas prints tables in
# full width, figures of matplotlib are shown, and IPython.display works. It is compiled
# when the first of these packages is imported, and imports none of them itself.
#
# It continues later.py or session.py in the same namespace. Both have shows(), which says
# whether values can be shown now, show_data() and show_values().
import posix
import sys

displayed = []  # figures that the cell has displayed itself
last = None     # the figure that show() has displayed last


def adapted(finder, name, path, target):
    """Finds a module for a finder at the head of sys.meta_path, and adapts it when it has been imported."""
    spec = None
    for other in list(sys.meta_path):
        spec = None if other is finder else other.find_spec(name, path, target)
        if spec is not None:
            break
    if spec is None:
        return imitated(name) if name.partition(".")[0] == "IPython" and shows() else None
    change, loader = CHANGES.get(name), spec.loader
    if change and hasattr(loader, "exec_module") and not isinstance(loader, type):
        after(loader, change)
    return spec


def after(loader, change):
    """Makes a loader change a module once it has run."""
    run = loader.exec_module

    def exec_module(module):
        run(module)
        try:
            change(module)
        except Exception:
            pass  # an unknown version of the package: it works as it is

    loader.exec_module = exec_module


def change_pandas(pandas):
    """Makes tables as wide as in a notebook. Otherwise pandas cuts them at the 80 columns of a terminal."""
    pandas.set_option("display.width", 1000)
    pandas.set_option("display.max_columns", 20)


# -- figures

def change_pyplot(pyplot):
    """Makes show() display all figures and close them, as in a notebook."""
    plain_show, plain_save = pyplot.show, getattr(pyplot, "savefig", None)

    def show(*arguments, **options):
        if shows():
            displayed.clear()
            show_figures(pyplot)
        else:
            plain_show(*arguments, **options)

    def savefig(*arguments, **options):
        if last is not None and not pyplot.get_fignums():  # show() has closed it; without this, the file would be empty
            return last.savefig(*arguments, **options)
        return plain_save(*arguments, **options)

    show.__doc__, savefig.__doc__ = plain_show.__doc__, plain_save.__doc__
    pyplot.show, pyplot.savefig = show, savefig
    if "state" in globals():
        state["end"] = lambda: shows() and show_figures(pyplot)
        state["drawn"] = drawn
    change_figure(sys.modules["matplotlib.figure"].Figure)


def change_figure(kind):
    """Makes figures remember the files that they were saved to."""
    save = kind.savefig

    def savefig(figure, *arguments, **options):
        result = save(figure, *arguments, **options)
        name = arguments[0] if arguments else options.get("fname")
        try:
            figure.__dict__.setdefault("_saved_as", []).append(sys.modules["os"].path.abspath(name))
            figure.stale = False  # becomes true when the figure is changed
        except TypeError:
            pass  # not a path
        return result

    savefig.__doc__, savefig.__name__ = save.__doc__, "savefig"
    kind.savefig = savefig


def saved(figure):
    """Returns the type and bytes of the last picture that a figure was saved to, if the figure was not changed since.
    The same bytes as a file and as a shown value count as one picture, so files that the run hands over come first.
    The bytes are None if they do not fit into a frame and the file is one of these."""
    names = figure.__dict__.get("_saved_as", ())
    work = (sys.modules["os"].environ.get("SANDBOX_OUTPUT_DIR") or "/mnt/data") + "/"
    for name in sorted(reversed(names if names and not figure.stale else ()), key=lambda name: not name.startswith(work)):
        try:
            with open(name, "rb") as file:
                data = file.read(FRAME)
        except OSError:
            continue
        for mime, mark in ("image/png", b"\x89PNG"), ("image/jpeg", b"\xff\xd8\xff"):
            if data.startswith(mark):
                if fits(data):
                    return mime, data
                if name.startswith(work) and "/." not in name:
                    return mime, None
    return None


def drawn(value):
    """Reports whether a value is only parts of open figures, such as the lines that plot() returns: the picture says more."""
    parts = value if type(value) in (list, tuple) and value else [value]
    figure = sys.modules["matplotlib.figure"].Figure
    return bool(sys.modules["matplotlib.pyplot"].get_fignums()) and all(
        type(part).__module__.startswith("matplotlib.") and not isinstance(part, figure) for part in parts)


def fits(data):
    return len(data) * 4 < FRAME * 3 - 10000


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
        if fits(out.getvalue()):
            return out.getvalue()


def add_picture(value, found):
    """Adds the picture of a figure to the forms of a value."""
    if isinstance(value, sys.modules["matplotlib.figure"].Figure):
        mime, data = saved(value) or ("image/png", picture(value))
        if data and "image/png" not in found:
            found[mime] = data
        displayed.append(value)


def show_figures(pyplot):
    """Displays all open figures and closes them."""
    global last
    numbers = getattr(pyplot, "get_fignums", tuple)()
    try:
        for number in numbers:
            figure = last = pyplot.figure(number)
            if not any(figure is f for f in displayed):
                if saved(figure) and not saved(figure)[1]:
                    continue  # the file is shown
                found = {"text/plain": repr(figure)}
                add_picture(figure, found)
                show_data(data_of(found, False))
    finally:
        if numbers:
            pyplot.close("all")


# -- IPython.display

def show_all(*values, raw=False, display_id=None, **options):
    """Shows values in their richest forms."""
    for value in values:
        if raw:
            show_data(data_of(value, False))
        else:
            show_values(value)
    return Handle(display_id) if display_id is not None else None


def publish(data, *arguments, **options):
    show_data(data_of(data, False))


def nothing_to_do(*arguments, **options):
    """A value that was shown stays."""


class Handle:
    """What display() returns for a value with an id. An update is shown as a value of its own."""

    def __init__(self, display_id=None):
        self.display_id = display_id

    def display(self, value, **options):
        show_values(value)

    update = display


def change_display(module):
    """Makes display() of the real IPython show values; outside a notebook, it prints them."""
    module.display, module.publish_display_data = where_shown(show_all, module.display), where_shown(publish, module.publish_display_data)
    module.clear_output, module.update_display = where_shown(nothing_to_do, module.clear_output), where_shown(show_all, module.update_display)


def where_shown(show, plain):
    """Returns a function that calls show where values can be shown, and plain elsewhere."""
    def function(*arguments, **options):
        return (show if shows() else plain)(*arguments, **options)

    function.__name__, function.__doc__ = plain.__name__, plain.__doc__
    return function


class Shown:
    """A value of IPython.display: a text or bytes with a type, given as such or as the name of a file."""
    mime = "text/plain"

    def __init__(self, data=None, url=None, filename=None, metadata=None, **options):
        if data is not None and url is None and filename is None and isinstance(data, str) and self.is_file(data):
            filename = data
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
            if not self.mime.startswith("image/") or self.mime == "image/svg+xml":
                data = data.decode("utf-8")
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata

    def is_file(self, data):
        return False

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {} if self.data is None else {self.mime: self.data, "text/plain": repr(self)}

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


class Pretty(Shown):
    def __repr__(self):
        return str(self.data)


class JSON(Shown):
    mime = "application/json"

    def __init__(self, data=None, url=None, filename=None, **options):
        super().__init__(data, url, filename)
        if isinstance(self.data, str):
            import json
            self.data = json.loads(self.data)


class Math(Shown):
    mime = "text/latex"

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime: "$\\displaystyle %s$" % self.data.strip("$"), "text/plain": repr(self)}


class Image(Shown):
    mime = "image/png"

    def is_file(self, data):
        return True

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.data is None:
            return {"text/html": '<img src="%s"/>' % self.url, "text/plain": repr(self)}
        jpeg = self.data[:3] == b"\xff\xd8\xff"
        return {"image/jpeg" if jpeg else "image/png": self.data, "text/plain": repr(self)}


class IFrame(Shown):
    mime = "text/html"

    def __init__(self, src, width, height, **options):
        super().__init__('<iframe src="%s" width="%s" height="%s"></iframe>' % (src, width, height))


def kinds():
    """The classes and functions of IPython.display."""
    found = {c.__name__: c for c in (Pretty, JSON, Math, Image, IFrame)}
    for name, mime in ("HTML", "text/html"), ("Markdown", "text/markdown"), ("Latex", "text/latex"), ("SVG", "image/svg+xml"), ("Code", "text/plain"), ("Javascript", "text/plain"):
        found[name] = type(name, (Shown,), {"mime": mime})
    show_all.__name__ = "display"
    for kind in found.values():
        kind.__module__ = "IPython.core.display"
    return dict(found, DisplayObject=Shown, DisplayHandle=Handle, display=show_all, update_display=show_all, publish_display_data=publish, clear_output=nothing_to_do)


class Imitation:
    """Loads the part of IPython that programs outside a notebook use, if IPython is not installed."""

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        if module.__name__ == "IPython":
            module.__dict__.update(get_ipython=lambda: None, version_info=(8, 0, 0, ""), __version__="8.0.0", display=show_all)
        elif module.__name__ != "IPython.core":
            module.__dict__.update(kinds_once())


def kinds_once():
    if "names" not in kinds.__dict__:
        kinds.names = kinds()
    return kinds.names


def imitated(name):
    if name in ("IPython", "IPython.core", "IPython.display", "IPython.core.display", "IPython.core.display_functions"):
        from _frozen_importlib import ModuleSpec
        return ModuleSpec(name, Imitation(), is_package=name in ("IPython", "IPython.core"))


CHANGES = {"pandas": change_pandas, "matplotlib.pyplot": change_pyplot, "IPython.core.display_functions": change_display}
