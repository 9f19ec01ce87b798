# The part of the driver that is compiled only when there is something to tell:
# an uncaught exception, a refused program, a value with more forms than its text.
import posix
import sys

try:
    from _json import encode_basestring_ascii as quote
except ImportError:
    from json import dumps as quote


def site_at_last(finder, name, path, target):
    """Does what the interpreter's start left out, and then looks for the module."""
    import site
    sys.meta_path.remove(finder)
    first = sys.path[:1] == [""]  # a session's working directory, which site would name
    if first:
        del sys.path[0]
    site.main()
    if first:
        sys.path.insert(0, "")
    fill_caches(finder.sets)
    for finder in list(sys.meta_path):
        spec = finder.find_spec(name, path, target)
        if spec is not None:
            return spec


def see(sets):
    """Puts package sets before the machine's own packages, as boot.py does."""
    import os
    sets = [place + "/site-packages" for place in sets]
    os.environ["PYTHONPATH"] = ":".join(sets)
    at = ([place.endswith("-packages") for place in sys.path] + [True]).index(True)
    sys.path[at:at] = sets
    fill_caches(sets)


def fill_caches(sets):
    """Puts what packages of a set would else work out in every run where they look for it."""
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
    """Writes one frame, if the channel is still the one that we were given."""
    if not channel or len(text) > FRAME:
        return False
    try:
        seen, (was, pid) = posix.fstat(3), channel
        if (seen.st_dev, seen.st_ino, posix.getpid()) != (was.st_dev, was.st_ino, pid):
            return False
        data = memoryview(len(text).to_bytes(4, "big") + text.encode("ascii"))
        while data:
            data = data[posix.write(3, data):]
    except OSError:
        return False
    return True


def text_of(value):
    try:
        return str(value)[:65536]
    except Exception:
        return "<unprintable %s object>" % type(value).__name__


def of_driver(trace):
    return trace.tb_frame.f_code.co_filename == driver or trace.tb_frame.f_globals is globals()


def strip(trace):
    """Takes the driver's frames out of a traceback."""
    while trace is not None and of_driver(trace):
        trace = trace.tb_next
    at = trace
    while at is not None:
        while at.tb_next is not None and of_driver(at.tb_next):
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return trace


def ours(name):
    """Imports a module of the interpreter's own, whatever lies in the working directory."""
    path, sys.path = sys.path, library
    try:
        return __import__(name)
    finally:
        sys.path = path


def all_lines(error, trace):
    path, sys.path = sys.path, library  # a traceback.py of the user's is not ours
    try:
        import traceback
        return "".join(traceback.format_exception(type(error), error, trace)).rstrip("\n").split("\n")
    finally:
        sys.path = path


def error_words(error, lines):
    """The members of an error frame."""
    if len(lines) > 200:
        lines = lines[:99] + ["... %d lines left out ..." % (len(lines) - 198)] + lines[-99:]
    kept, room = [], 65536
    for line in reversed(lines):
        room -= len(line)
        if room < 0:
            break
        kept.append(quote(line))
    return '"name":%s,"value":%s,"traceback":[%s]' % (
        quote(type(error).__name__[:256]), quote(text_of(error)), ",".join(kept[::-1]))


def error_frame(error, trace):
    try:
        lines = all_lines(error, trace)
    except Exception:
        lines = []
    send('{"type":"error",%s}' % error_words(error, lines))


def tell(error):
    """Tells of the exception, and lets the interpreter end by it as it always does.

    The frame goes out now and not in the hook: what loads for it would make the
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
        quote(type(error).__name__), quote(text_of(error.msg)), error.lineno or 0, error.offset or 0)


def refuse(error):
    """The program cannot be compiled: a frame where somebody waits for it, else the interpreter's own words."""
    said = SyntaxError(str(error)) if isinstance(error, ValueError) else error  # NUL bytes, before Python 3.12
    if display != "none" and isinstance(said, SyntaxError):
        if send('{"type":"syntax",%s}' % syntax_words(said)):
            raise SystemExit(1) from None
    tell(error)


RICH = (
    ("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"), ("_repr_latex_", "text/latex"),
    ("_repr_svg_", "image/svg+xml"), ("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"),
    ("_repr_json_", "application/json"),
)


def forms(value):
    """The forms that a value says it has, as a notebook asks for them."""
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
    return ours("json").dumps(form, allow_nan=False)  # which is no JSON, and would end the conversation


def data_of(found, main):
    """The data of a display frame; None when there is nothing to show."""
    parts, room = ['{"is_main_result":%s' % ("true" if main else "false")], FRAME - 100
    for mime in sorted(found, key=lambda mime: mime != "text/plain"):  # the text is what stays
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
            found.setdefault("text/plain", repr(value)[:65536])
        except Exception:
            pass
    data = data_of(found, True)
    if data:
        send('{"type":"display","data":%s}' % data)
