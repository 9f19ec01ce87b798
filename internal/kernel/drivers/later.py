# The part of the driver that is compiled only when it is needed: to report an uncaught
# exception or a syntax error, to show a value with rich forms, or to import a package.
import posix
import sys
from _thread import RLock

try:
    from _json import encode_basestring_ascii as quote
except ImportError:
    from json import dumps as quote


def site_at_last(finder, name, path, target):
    """Runs "site", which the start of the interpreter has skipped, and then finds the module."""
    import site
    sys.meta_path.remove(finder)
    first = sys.path[:1] == [""]  # a session's working directory, which site would make absolute
    if first:
        del sys.path[0]
    site.main()
    if first:
        sys.path.insert(0, "")
    fill_caches(finder.sets)
    if state is not None:  # a session has a finder of its own
        sys.meta_path.insert(0, Adapter())
    for finder in list(sys.meta_path):
        spec = finder.find_spec(name, path, target)
        if spec is not None:
            return spec


class Adapter:
    """Adapts packages that show values when they are imported; see adapt.py, which is compiled then."""

    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "matplotlib.pyplot") or name.partition(".")[0] == "IPython":
            if "adapted" not in globals():
                exec(compile(adapt, driver, "exec"), globals())
            return adapted(self, name, path, target)


def shows():
    """Whether this program's values can be shown. It reads the state of the run, which is that of a fork."""
    globals().update(state)
    return state.get("display", "none") != "none" and bool(channel) and channel[1] == posix.getpid()


def show_data(data):
    room, count = state.setdefault("room", 8 << 20), state.setdefault("count", 0)
    if data and room >= 0 and count <= 256:  # else the last frame was too much: the server has left it out, and says so
        state["room"], state["count"] = room - len(data), count + 1
        send('{"type":"display","data":%s}' % data)


def show_values(*values):
    for value in values:
        found = forms(value)
        if "matplotlib.figure" in sys.modules:
            add_picture(value, found)
        if isinstance(value, (dict, list)):
            found.setdefault("application/json", value)
        found.setdefault("text/plain", shown_text(value))
        show_data(data_of(found, False))


def see(sets):
    """Puts package sets before the machine's packages in sys.path, as boot.py does."""
    import os
    sets = [place + "/site-packages" for place in sets]
    os.environ["PYTHONPATH"] = ":".join(sets)
    at = ([place.endswith("-packages") for place in sys.path] + [True]).index(True)
    sys.path[at:at] = sets
    fill_caches(sets)


def fill_caches(sets):
    """Links the prepared caches of package sets, such as matplotlib's font list, to where the packages look for them."""
    place = posix.environ.get(b"MPLCONFIGDIR")
    for directory in sets:
        try:
            directory = directory[:-len("site-packages")] + "cache"
            for name in posix.listdir(directory):
                try:
                    posix.mkdir(place)
                except FileExistsError:
                    pass
                posix.symlink(directory + "/" + name, place + b"/" + name.encode())
        except (OSError, TypeError):
            pass


FRAME = 1000000  # bytes of JSON in a frame, a little below the reader's bound


def send(text):
    """Writes one frame, if descriptor 3 is still the channel. Frames of several threads do not mix."""
    if not channel or len(text) > FRAME:
        return False
    lock = state.setdefault("lock", RLock())
    try:
        seen, (was, pid) = posix.fstat(3), channel
        if (seen.st_dev, seen.st_ino, posix.getpid()) != (was.st_dev, was.st_ino, pid):
            return False
        if lock._is_owned():  # a signal handler that interrupts a frame
            return False
        data = memoryview(len(text).to_bytes(4, "big") + text.encode("ascii"))
        with lock:
            while data:
                data = data[posix.write(3, data):]
    except OSError:
        return False
    return True


def shown_text(value):
    """The text of a value to show. A long one is cut, and says so as that of Node.js does."""
    text = repr(value)
    return text if len(text) <= 65536 else text[:65536] + " ..."


def text_of(value):
    try:
        return str(value)[:65536]
    except Exception:
        return "<unprintable %s object>" % type(value).__name__


def of_driver(trace):
    return trace.tb_frame.f_code.co_filename == driver or trace.tb_frame.f_globals is globals()


def strip(trace):
    """Removes the driver's frames from a traceback."""
    while trace is not None and of_driver(trace):
        trace = trace.tb_next
    at = trace
    while at is not None:
        while at.tb_next is not None and of_driver(at.tb_next):
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return trace


def ours(name):
    """Imports a module of the standard library, even if the working directory has one of that name."""
    path, sys.path = sys.path, library
    try:
        return __import__(name)
    finally:
        sys.path = path


def all_lines(error, trace):
    path, sys.path = sys.path, library  # do not import a traceback.py of the user
    try:
        import traceback
        return "".join(traceback.format_exception(type(error), error, trace)).rstrip("\n").split("\n")
    finally:
        sys.path = path


def words_of(text):
    """Quotes a text. Characters that take twelve bytes do not make it larger than two fifths of a frame."""
    words = quote(text)
    return words if len(words) <= FRAME * 2 // 5 else quote(text[:32768])


def error_words(error, lines):
    """The members of an error frame."""
    if len(lines) > 200:
        lines = lines[:99] + ["... %d lines left out ..." % (len(lines) - 198)] + lines[-99:]
    kept, room, left = [], 65536, FRAME * 2 // 5
    for line in reversed(lines):
        word = quote(line)
        room, left = room - len(line), left - len(word)
        if room < 0 or left < 0:
            break
        kept.append(word)
    return '"name":%s,"value":%s,"traceback":[%s]' % (
        quote(type(error).__name__[:256]), words_of(text_of(error)), ",".join(kept[::-1]))


def error_frame(error, trace):
    try:
        lines = all_lines(error, trace)
    except Exception:
        lines = []
    send('{"type":"error",%s}' % error_words(error, lines))


def tell(error):
    """Reports the exception on the channel. The interpreter then ends by it as usual.

    The frame is sent now and not in the excepthook: imports in the hook would make the
    interpreter forget that it has to end by SIGINT.
    """
    try:
        error_frame(error, strip(error.__traceback__))
    except Exception:
        pass
    hook = sys.excepthook

    def excepthook(kind, error, trace):
        sys.excepthook = hook
        error.__traceback__ = sys.last_traceback = trace = strip(trace)
        hook(kind, error, trace)

    sys.excepthook = excepthook


def syntax_words(error):
    """The members of a syntax frame."""
    return '"name":%s,"message":%s,"line":%d,"col":%d' % (
        quote(type(error).__name__), words_of(text_of(error.msg)), error.lineno or 0, error.offset or 0)


def refuse(error):
    """Reports that the program cannot be compiled: by a syntax frame if values are shown, else by an error."""
    said = SyntaxError(str(error)) if isinstance(error, ValueError) else error  # NUL bytes, before Python 3.12
    if display not in ("none", "figures") and isinstance(said, SyntaxError):
        if send('{"type":"syntax",%s}' % syntax_words(said)):
            raise SystemExit(1) from None
    tell(error)


RICH = (
    ("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"), ("_repr_latex_", "text/latex"),
    ("_repr_svg_", "image/svg+xml"), ("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"),
    ("_repr_json_", "application/json"),
)


def forms(value):
    """Returns the forms that a value provides by its _repr_*_ methods, as a notebook reads them."""
    kind, found = type(value), {}
    if issubclass(kind, type):
        return found
    if getattr(kind, "_repr_mimebundle_", None) is not None:
        try:
            bundle = value._repr_mimebundle_(include=None, exclude=None)
            found.update(bundle[0] if isinstance(bundle, tuple) else bundle or {})
        except Exception:
            pass
    for method, mime in RICH:
        if mime in found or getattr(kind, method, None) is None:
            continue
        try:
            form = getattr(value, method)()
            if isinstance(form, tuple):  # with metadata
                form = form[0]
            if form is not None:
                found[mime] = form
        except Exception:
            pass
    return found


def encode(form):
    if isinstance(form, str):
        return quote(form)
    if isinstance(form, (bytes, bytearray)):
        from binascii import b2a_base64
        return quote(b2a_base64(form, newline=False).decode("ascii"))
    return ours("json").dumps(form, allow_nan=False)  # NaN is not JSON, and a strict client would drop the connection


def data_of(found, main):
    """Returns the data of a display frame, or None if there is nothing to show."""
    parts, room = ['{"is_main_result":%s' % ("true" if main else "false")], FRAME - 100
    for mime in sorted(found, key=lambda mime: mime != "text/plain"):  # text first, so that it always fits
        try:
            form = found[mime]
            part = ",%s:%s" % (quote(mime), encode(form))
        except Exception:
            continue
        if isinstance(mime, str) and len(part) <= room:  # a form that is too large is left out
            room -= len(part)
            parts.append(part)
    return "".join(parts) + "}" if len(parts) > 1 else None


def display_frame(value):
    found = forms(value)
    if display == "results" or found:
        try:
            found.setdefault("text/plain", shown_text(value))
        except Exception:
            pass
    show_data(data_of(found, True))
