# Continues session.py in the same namespace: the standard input, environment and modules
# of a cell, and the values that it shows.
import posix
import sys
from _io import open


def feed(data):
    """Makes descriptor 0 read data; None: empty."""
    try:
        at = posix.fstat(0)
        fresh = data is not None or at.st_rdev != null
    except OSError:
        fresh = True
    if fresh:
        if data is None:
            fd = posix.open("/dev/null", posix.O_RDONLY | posix.O_CLOEXEC)
        else:
            fd = temporary(data)
        if fd != 0:
            posix.dup2(fd, 0)
            posix.close(fd)
    if fresh or now.stdin is None or now.stdin.closed:
        new = open(0, "r", encoding="utf-8", errors="surrogateescape", closefd=False)
        if sys.stdin is now.stdin or sys.stdin is None or getattr(sys.stdin, "closed", False):
            sys.stdin = new
        sys.__stdin__ = now.stdin = new


def temporary(data):
    """Returns a descriptor of an unnamed file with data, at its start."""
    place = environ.get("TMPDIR") or "/tmp"
    try:
        fd = posix.open(place, posix.O_TMPFILE | posix.O_RDWR | posix.O_CLOEXEC, 0o600)
    except (OSError, AttributeError):
        name = "%s/.stdin-%s" % (place, posix.urandom(8).hex())
        fd = posix.open(name, posix.O_CREAT | posix.O_EXCL | posix.O_RDWR | posix.O_CLOEXEC, 0o600)
        posix.unlink(name)
    at = 0
    while at < len(data):
        at += posix.write(fd, memoryview(data)[at:at + (1 << 20)])
    posix.lseek(fd, 0, 0)
    return fd


def set_env(env):
    for name, value in env.items():
        now.env[name] = environ.get(name)
        environ[name] = value


def unset_env():
    while now.env:
        name, value = now.env.popitem()
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value


packages = []  # directories that cells have brought, by see_packages


def see_packages(places):
    """Puts directories of packages before all others in sys.path, in place of those of the last cell."""
    if places == packages:
        return
    sys.path[:] = [place for place in sys.path if place not in packages]
    at = ([str(place).endswith("-packages") for place in sys.path] + [True]).index(True)
    sys.path[at:at] = places
    packages[:] = places


lines_waiting = {}  # texts of cells, until linecache is imported
remembered = []     # names of cells and sizes of their texts


def remember(name, text):
    """Keeps a cell's text for tracebacks and inspect: the latest 16 MiB of all cells."""
    lines_waiting[name] = len(text), None, [line + "\n" for line in text.split("\n")], name
    remembered.append((name, len(text)))
    now.remembered += len(text)
    linecache = sys.modules.get("linecache")
    while now.remembered > 16 << 20 and len(remembered) > 1:
        old, size = remembered.pop(0)
        now.remembered -= size
        lines_waiting.pop(old, None)
        if linecache:
            linecache.cache.pop(old, None)
    if linecache:
        fill_linecache(linecache)


def fill_linecache(module):
    module.cache.update(lines_waiting)
    lines_waiting.clear()


class Finder:
    """Provides the module "sandbox", and patches modules that need the driver's help when they are imported."""

    def find_spec(self, name, path=None, target=None):
        if name == "sandbox":
            from _frozen_importlib import ModuleSpec
            return ModuleSpec(name, self)
        if name in ("pandas", "matplotlib.pyplot") or name.partition(".")[0] == "IPython":
            need("adapt.py")
            return adapted(self, name, path, target)
        if name not in ("linecache", "inspect"):
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                self.wrap(spec.loader, name)
                return spec

    def wrap(self, loader, name):
        if isinstance(loader, type) or not hasattr(loader, "exec_module"):
            return
        run = loader.exec_module

        def exec_module(module):
            run(module)
            if name == "linecache":
                fill_linecache(module)
            else:
                need("notebook.py")
                patch_inspect(module)

        loader.exec_module = exec_module

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__dict__.update(display=display, __file__=None)
        del module.__file__
        code = texts["sandbox.py"]
        exec(compile(code, driver, "exec") if isinstance(code, str) else code, module.__dict__)


# -- values

def display(*values):
    """Shows values in their richest forms."""
    need("later.py")
    for value in values:
        found = all_forms(value)
        if "application/json" not in found and isinstance(value, (dict, list)):
            found["application/json"] = value
        if "text/plain" not in found:
            found["text/plain"] = shown_text(value)
        show(data_of(found, False))


display.__module__ = "sandbox"
show_values = display


def shows():
    return posix.getpid() == globals().get("pid")  # not in the zygote


def show_data(data):
    show(data)


def all_forms(value):
    found = forms(value)
    if "matplotlib.figure" in sys.modules:
        need("adapt.py")
        add_picture(value, found)
    return found


def show_main(value):
    """Shows a value as the result of a cell."""
    if now.display == "stdout":
        sys.displayhook(value)
        found = all_forms(value)
    else:
        found = all_forms(value)
        if "text/plain" not in found:
            try:
                found["text/plain"] = shown_text(value)
            except Exception:
                if not found:
                    raise
    if now.display == "results" or found:
        if "text/plain" not in found:
            found["text/plain"] = shown_text(value)
        show(data_of(found, True))


def show_result(value):
    """Shows the value of a cell's last expression and assigns it to _."""
    if value is None:
        return
    need("later.py")
    if "matplotlib.pyplot" in sys.modules:
        need("adapt.py")
    if "matplotlib.pyplot" not in sys.modules or not drawn(value):
        show_main(value)
    names = "_", "__", "___"
    if all(main.get(n, v) is v for n, v in zip(names, now.values)) and (now.values or not any(n in main for n in names)):
        now.values = (value, *now.values, "", "")[:3]
        main.update(zip(names, now.values))
