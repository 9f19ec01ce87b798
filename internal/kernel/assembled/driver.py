def boot():
    import gc, posix, sys
    from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader
    from _weakref import ReferenceType
    state = first["again"].state if "again" in first else {}  # preload.py sets "again" in a zygote
    directory = sys.path.pop(0)
    if sys.flags.no_site:
        import builtins, _sitebuiltins
        builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
        builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
        builtins.help = _sitebuiltins._Helper()
        home = "%s/lib/python%d.%d/" % (sys.prefix, *sys.version_info[:2])
        places = (home.replace("/lib/", "/local/lib/") + "dist-packages", sys.prefix + "/lib/python3/dist-packages", home + "dist-packages",
            home.replace("/lib/", "/lib64/") + "site-packages", home + "site-packages")
        
        class Later:
            def find_spec(self, name, path=None, target=None):
                if name not in own and path is None or name in ("importlib.metadata", "pkgutil"):
                    names = dict(globals(), sys=sys, state=state)
                    exec(text, names)
                    return names["site_at_last"](self, name, path, target)
        
        own = sys.stdlib_module_names
        sys.meta_path.insert(0, Later())
    else:
        class Later:
            def find_spec(self, name, path=None, target=None):
                if name in ("pandas", "matplotlib.pyplot", "IPython"):
                    names = dict(globals(), state=state)
                    exec(text, names)
                    sys.meta_path[sys.meta_path.index(self)] = adapter = names["Adapter"]()
                    return adapter.find_spec(name, path, target)

        sys.meta_path.insert(0, Later())
    sys.path.insert(0, directory)
    begun = strict = channel = found = None

    def lacks(codes, text, main, known=frozenset({"base64", "collections", "csv", "functools", "hashlib", "io", "itertools", "json", "math", "os", "pathlib", "random", "re", "sys", "time", "typing", "Path", "timedelta", "datetime", "requests", "np", "numpy", "pd", "pandas", "plt", "matplotlib", "BeautifulSoup", "bs4"})):
        """The known names that a program loads as globals and that neither it nor the interpreter has bound. The set is
        empty if the program can tell a bound name from an unbound one. fix.py decides by the syntax tree.
    
        Almost all programs end at the first line that returns, and those that import every name that they use at the third: the
        import lines are read as text, because parsing takes as long as half of a compilation."""
        codes, loads = list(codes), False
        for code in codes:
            for c in code.co_consts:
                if type(c) is type(code):
                    codes.append(c)
            if not known.isdisjoint(code.co_names):
                loads = True
        if not loads:
            return set()
        names = set().union(*[code.co_names for code in codes])
        found = set(names & known)
        if not names.isdisjoint((
                "NameError", "globals", "locals", "exec", "eval", "builtins", "__builtins__", "__main__", "modules", "excepthook", "__import__", "import_module",
                "__globals__", "f_globals", "f_builtins", "f_locals", "_getframe", "currentframe")):
            return set()
        builtin = __builtins__.__dict__ if hasattr(__builtins__, "__dict__") else __builtins__
        found = {name for name in found if name not in main and name not in builtin}  # iterating over builtins writes to all their names
        if type(text) is str:
            text = text.encode("utf-8", "replace")
        for line in text.split(b"\n"):
            if line.startswith((b"import ", b"from ")):
                for part in (line[7:] if line[0] == 105 else line.partition(b" import ")[2]).split(b";")[0].split(b","):
                    part = part.replace(b"(", b" ").split()
                    if part:
                        found.discard((part[2] if part[1:2] == [b"as"] and part[2:] else part[0].split(b".")[0]).decode("utf-8", "replace"))
        if not found:
            return found
        import _warnings
        quiet = "ignore", None, Warning, None, 0
        try:
            import _symtable
            _warnings.filters.insert(0, quiet)  # compile() has warned already
            try:
                tables = [_symtable.symtable(text, "<program>", "exec")]
            finally:
                _warnings.filters.remove(quiet)
        except Exception:
            return set()
        used, bound = set(), set()
        while tables:
            table = tables.pop()
            tables += table.children
            for name in found & table.symbols.keys():
                flags = table.symbols[name]
                if not flags & _symtable.DEF_BOUND:
                    if flags & _symtable.USE:
                        used.add(name)
                elif table.type != _symtable.TYPE_CLASS:
                    bound.add(name)
        return used - bound

    def start():
        sys.path.insert(0, home)
        if channel:
            try:
                posix.write(3, b'\0\0\0\x10{"type":"start"}')
            except OSError:
                pass

    from _imp import _fix_co_filename
    from _warnings import filters
    there = "atexit" in sys.modules
    from atexit import _ncallbacks
    if not there:  # as in every interpreter
        del sys.modules["atexit"]

    def leave():
        """Ends the process if the interpreter would do nothing else that can be seen."""
        try:
            made = gc.get_objects()
            if "threading" in sys.modules or _ncallbacks() or gc.get_debug() or len(filters) != warned or len(made) > 10000:
                return
            module, bases, names, silent = type(sys), type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__, set()
            for thing in made:
                kind = type(thing)
                if kind in silent:
                    continue
                if kind is module:
                    if type(thing.__dict__.get("__loader__")) is ExtensionFileLoader:
                        return
                elif kind is ReferenceType:
                    if thing.__callback__ is not None:
                        return
                else:
                    for base in bases(kind):
                        if base is module or base is ReferenceType or "__del__" in names(base):
                            return
                    if type in bases(kind):  # an instance of a class may be unknown to the collector
                        if "__del__" in names(thing):
                            return
                    else:
                        silent.add(kind)
            for stream in streams:
                stream.flush()
        except BaseException:
            return  # the interpreter meets the same error and reports it
        posix._exit(0)

    def begin(frame, event, _):
        nonlocal begun, found
        if event == "call" and frame.f_globals is main:
            sys.setprofile(None)
            if display != "figures":
                found = lacks([frame.f_code], code, main)
                if found:
                    raise NameError
            filters.remove(strict)
            _fix_co_filename(frame.f_code, path)
            start()
            begun = True

    if sys.stdout:
        sys.stdout.reconfigure(line_buffering=True)
    del first["boot"]
    wait, again, library, seen = first.pop("wait", None), first.pop("again", None), sys.path[1:], []
    while True:
        ended = again and again()
        display, path, *sets = sys.argv[1:]
        if display[:6] == "guard ":
            from _frozen_importlib_external import MAGIC_NUMBER
            display, place = display[6:], sys.path.pop(0)
            with open(path.rpartition("/")[0] + "/.sandboxmcp_guard.py", "rb") as file:
                code = file.read()
            if code[:4] == MAGIC_NUMBER:
                import marshal
                code = marshal.loads(code[16:])
            names = {"__name__": "sandboxmcp", "__builtins__": __builtins__}
            exec(code, names)
            with open(path, "rb") as file:
                issues = names["refused"](file.read())
            if issues:
                issues = ('{"type":"refused","issues":%s}' % issues).encode("ascii")
                posix.write(3, len(issues).to_bytes(4, "big") + issues)
                posix._exit(1)
            posix.write(3, b'\0\0\0\x0e{"type":"try"}')
            sys.path.insert(0, place)
            code = names = issues = file = place = None
        sets = [place + "/site-packages" for place in sets]
        if sets:
            known = ":".join(sets)
            if "os" in sys.modules:
                sys.modules["os"].environ["PYTHONPATH"] = known
            else:  # os builds its environ from posix.environ
                known = known.encode("utf-8", "surrogateescape")
                posix.environ[b"PYTHONPATH"] = known
                posix.putenv(b"PYTHONPATH", known)
        sys.argv = [path]
        sys.path[0] = "/mnt/data" if wait else posix.getcwd()
        if again and again.paths:
            pass
        elif sys.flags.no_site:
            seen = []
            sys.path += sets
            for place in places:
                there = posix.access(place, 0)
                seen.append((place, there))
                if there:
                    sys.path.append(place)
            Later.sets = sets
        else:
            at = [place.endswith("-packages") for place in sys.path] + [True]
            at = at.index(True)
            sys.path[at:at] = sets
        gc.freeze()
        module = type(sys)("__main__")
        main = module.__dict__
        main.update(first)
        main["__file__"] = path
        main["__loader__"] = SourceFileLoader("__main__", path)
        sys.modules["__main__"] = module
        del module
        if not wait:
            break
        again.finder, again.places, again.library = Later, places, library
        prepared, wait = wait(path, seen, again, ("none", "quiet", "results", "stdout", "figures")), None
        if prepared:
            display, path = prepared
            break
        again = first.pop("again", again)
        if not again.paths:
            sys.path[1:] = library
    library = sys.path[1:]
    try:
        posix.set_inheritable(3, False)
        channel = posix.fstat(3), posix.getpid()
    except OSError:
        pass
    state.update(display=display, channel=channel, library=library)
    home = sys.path.pop(0)
    streams, warned = (sys.stdout, sys.stderr), len(filters)
    if "begins at once" == "waits for word" and channel:
        try:
            if not posix.read(4, 1):
                posix._exit(0)
            posix.close(4)
        except OSError:
            pass
    try:
        try:
            if display == "none" or display == "quiet" or display == "figures":
                code, file = b"", posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
                while part := posix.read(file, 1 << 15):
                    code += part
                posix.close(file)
                strict = "error", None, SyntaxWarning, None, 0
                filters.insert(0, strict)
                sys.setprofile(begin)
                begin = None  # it would keep the program's names
                exec(code, main)
        except SystemExit as error:
            if ended:
                ended.how = error.code
            raise
        except BaseException as error:
            if begun:
                if ended:
                    ended.how = error
                names = dict(globals(), **locals())
                exec(text, names)
                names["tell"](error)
                raise
        if not begun:
            sys.setprofile(None)
            if strict:
                filters.remove(strict)
            begin = None
            names = dict(globals(), **locals())
            exec(compile(slow, driver, "exec"), names)
            names["slowly"]()

    finally:
        end = state.get("end")
        if end:
            try:
                end()
            except Exception:
                pass
    if begun and ended and "threading" not in sys.modules and ended.handlers() == 1:
        main = None
        ended()  # the interpreter would do nothing else before it
    if begun and not ended and sys.flags.no_site and streams[0] and streams[1] and not sys.gettrace() and not sys.getprofile():
        leave()


type(boot)(boot.__code__, {"__builtins__": __builtins__, "first": globals(), "driver": boot.__code__.co_filename, "text": "import posix\nimport sys\nfrom _thread import RLock\n\ntry:\n    from _json import encode_basestring_ascii as quote\nexcept ImportError:\n    from json import dumps as quote\n\n\ndef site_at_last(finder, name, path, target):\n    \"\"\"Runs \"site\", which the start of the interpreter has skipped, and then finds the module.\"\"\"\n    import site\n    sys.meta_path.remove(finder)\n    first = sys.path[:1] == [\"\"]  # a session's working directory, which site would make absolute\n    if first:\n        del sys.path[0]\n    site.main()\n    if first:\n        sys.path.insert(0, \"\")\n    fill_caches(finder.sets)\n    if state is not None:  # a session has a finder of its own\n        sys.meta_path.insert(0, Adapter())\n    for finder in list(sys.meta_path):\n        spec = finder.find_spec(name, path, target)\n        if spec is not None:\n            return spec\n\n\nclass Adapter:\n    \"\"\"Adapts packages that show values when they are imported; see adapt.py, which is compiled then.\"\"\"\n\n    def find_spec(self, name, path=None, target=None):\n        if name in (\"pandas\", \"matplotlib.pyplot\") or name.partition(\".\")[0] == \"IPython\":\n            if \"adapted\" not in globals():\n                exec(compile(adapt, driver, \"exec\"), globals())\n            return adapted(self, name, path, target)\n\n\ndef shows():\n    \"\"\"Whether this program's values can be shown. It reads the state of the run, which is that of a fork.\"\"\"\n    globals().update(state)\n    return state.get(\"display\", \"none\") != \"none\" and bool(channel) and channel[1] == posix.getpid()\n\n\ndef show_data(data):\n    room, count = state.setdefault(\"room\", 8 << 20), state.setdefault(\"count\", 0)\n    if data and room >= 0 and count <= 256:  # else the last frame was too much: the server has left it out, and says so\n        state[\"room\"], state[\"count\"] = room - len(data), count + 1\n        send('{\"type\":\"display\",\"data\":%s}' % data)\n\n\ndef show_values(*values):\n    for value in values:\n        found = forms(value)\n        if \"matplotlib.figure\" in sys.modules:\n            add_picture(value, found)\n        if isinstance(value, (dict, list)):\n            found.setdefault(\"application/json\", value)\n        found.setdefault(\"text/plain\", shown_text(value))\n        show_data(data_of(found, False))\n\n\ndef see(sets):\n    \"\"\"Puts package sets before the machine's packages in sys.path, as boot.py does.\"\"\"\n    import os\n    sets = [place + \"/site-packages\" for place in sets]\n    os.environ[\"PYTHONPATH\"] = \":\".join(sets)\n    at = ([place.endswith(\"-packages\") for place in sys.path] + [True]).index(True)\n    sys.path[at:at] = sets\n    fill_caches(sets)\n\n\ndef fill_caches(sets):\n    \"\"\"Links the prepared caches of package sets, such as matplotlib's font list, to where the packages look for them.\"\"\"\n    place = posix.environ.get(b\"MPLCONFIGDIR\")\n    for directory in sets:\n        try:\n            directory = directory[:-len(\"site-packages\")] + \"cache\"\n            for name in posix.listdir(directory):\n                try:\n                    posix.mkdir(place)\n                except FileExistsError:\n                    pass\n                posix.symlink(directory + \"/\" + name, place + b\"/\" + name.encode())\n        except (OSError, TypeError):\n            pass\n\n\nFRAME = 1000000  # bytes of JSON in a frame, a little below the reader's bound\n\n\ndef send(text):\n    \"\"\"Writes one frame, if descriptor 3 is still the channel. Frames of several threads do not mix.\"\"\"\n    if not channel or len(text) > FRAME:\n        return False\n    lock = state.setdefault(\"lock\", RLock())\n    try:\n        seen, (was, pid) = posix.fstat(3), channel\n        if (seen.st_dev, seen.st_ino, posix.getpid()) != (was.st_dev, was.st_ino, pid):\n            return False\n        if lock._is_owned():  # a signal handler that interrupts a frame\n            return False\n        data = memoryview(len(text).to_bytes(4, \"big\") + text.encode(\"ascii\"))\n        with lock:\n            while data:\n                data = data[posix.write(3, data):]\n    except OSError:\n        return False\n    return True\n\n\ndef shown_text(value):\n    \"\"\"The text of a value to show. A long one is cut, and says so as that of Node.js does.\"\"\"\n    text = repr(value)\n    return text if len(text) <= 65536 else text[:65536] + \" ...\"\n\n\ndef text_of(value):\n    try:\n        return str(value)[:65536]\n    except Exception:\n        return \"<unprintable %s object>\" % type(value).__name__\n\n\ndef of_driver(trace):\n    return trace.tb_frame.f_code.co_filename == driver or trace.tb_frame.f_globals is globals()\n\n\ndef strip(trace):\n    \"\"\"Removes the driver's frames from a traceback.\"\"\"\n    while trace is not None and of_driver(trace):\n        trace = trace.tb_next\n    at = trace\n    while at is not None:\n        while at.tb_next is not None and of_driver(at.tb_next):\n            at.tb_next = at.tb_next.tb_next\n        at = at.tb_next\n    return trace\n\n\ndef ours(name):\n    \"\"\"Imports a module of the standard library, even if the working directory has one of that name.\"\"\"\n    path, sys.path = sys.path, library\n    try:\n        return __import__(name)\n    finally:\n        sys.path = path\n\n\ndef all_lines(error, trace):\n    path, sys.path = sys.path, library  # do not import a traceback.py of the user\n    try:\n        import traceback\n        return \"\".join(traceback.format_exception(type(error), error, trace)).rstrip(\"\\n\").split(\"\\n\")\n    finally:\n        sys.path = path\n\n\ndef words_of(text):\n    \"\"\"Quotes a text. Characters that take twelve bytes do not make it larger than two fifths of a frame.\"\"\"\n    words = quote(text)\n    return words if len(words) <= FRAME * 2 // 5 else quote(text[:32768])\n\n\ndef error_words(error, lines):\n    \"\"\"The members of an error frame.\"\"\"\n    if len(lines) > 200:\n        lines = lines[:99] + [\"... %d lines left out ...\" % (len(lines) - 198)] + lines[-99:]\n    kept, room, left = [], 65536, FRAME * 2 // 5\n    for line in reversed(lines):\n        word = quote(line)\n        room, left = room - len(line), left - len(word)\n        if room < 0 or left < 0:\n            break\n        kept.append(word)\n    return '\"name\":%s,\"value\":%s,\"traceback\":[%s]' % (\n        quote(type(error).__name__[:256]), words_of(text_of(error)), \",\".join(kept[::-1]))\n\n\ndef error_frame(error, trace):\n    try:\n        lines = all_lines(error, trace)\n    except Exception:\n        lines = []\n    send('{\"type\":\"error\",%s}' % error_words(error, lines))\n\n\ndef tell(error):\n    \"\"\"Reports the exception on the channel. The interpreter then ends by it as usual.\n\n    The frame is sent now and not in the excepthook: imports in the hook would make the\n    interpreter forget that it has to end by SIGINT.\n    \"\"\"\n    try:\n        error_frame(error, strip(error.__traceback__))\n    except Exception:\n        pass\n    hook = sys.excepthook\n\n    def excepthook(kind, error, trace):\n        sys.excepthook = hook\n        error.__traceback__ = sys.last_traceback = trace = strip(trace)\n        hook(kind, error, trace)\n\n    sys.excepthook = excepthook\n\n\ndef syntax_words(error):\n    \"\"\"The members of a syntax frame.\"\"\"\n    return '\"name\":%s,\"message\":%s,\"line\":%d,\"col\":%d' % (\n        quote(type(error).__name__), words_of(text_of(error.msg)), error.lineno or 0, error.offset or 0)\n\n\ndef refuse(error):\n    \"\"\"Reports that the program cannot be compiled: by a syntax frame if values are shown, else by an error.\"\"\"\n    said = SyntaxError(str(error)) if isinstance(error, ValueError) else error  # NUL bytes, before Python 3.12\n    if display not in (\"none\", \"figures\") and isinstance(said, SyntaxError):\n        if send('{\"type\":\"syntax\",%s}' % syntax_words(said)):\n            raise SystemExit(1) from None\n    tell(error)\n\n\nRICH = (\n    (\"_repr_html_\", \"text/html\"), (\"_repr_markdown_\", \"text/markdown\"), (\"_repr_latex_\", \"text/latex\"),\n    (\"_repr_svg_\", \"image/svg+xml\"), (\"_repr_png_\", \"image/png\"), (\"_repr_jpeg_\", \"image/jpeg\"),\n    (\"_repr_json_\", \"application/json\"),\n)\n\n\ndef forms(value):\n    \"\"\"Returns the forms that a value provides by its _repr_*_ methods, as a notebook reads them.\"\"\"\n    kind, found = type(value), {}\n    if issubclass(kind, type):\n        return found\n    if getattr(kind, \"_repr_mimebundle_\", None) is not None:\n        try:\n            bundle = value._repr_mimebundle_(include=None, exclude=None)\n            found.update(bundle[0] if isinstance(bundle, tuple) else bundle or {})\n        except Exception:\n            pass\n    for method, mime in RICH:\n        if mime in found or getattr(kind, method, None) is None:\n            continue\n        try:\n            form = getattr(value, method)()\n            if isinstance(form, tuple):  # with metadata\n                form = form[0]\n            if form is not None:\n                found[mime] = form\n        except Exception:\n            pass\n    return found\n\n\ndef encode(form):\n    if isinstance(form, str):\n        return quote(form)\n    if isinstance(form, (bytes, bytearray)):\n        from binascii import b2a_base64\n        return quote(b2a_base64(form, newline=False).decode(\"ascii\"))\n    return ours(\"json\").dumps(form, allow_nan=False)  # NaN is not JSON, and a strict client would drop the connection\n\n\ndef data_of(found, main):\n    \"\"\"Returns the data of a display frame, or None if there is nothing to show.\"\"\"\n    parts, room = ['{\"is_main_result\":%s' % (\"true\" if main else \"false\")], FRAME - 100\n    for mime in sorted(found, key=lambda mime: mime != \"text/plain\"):  # text first, so that it always fits\n        try:\n            form = found[mime]\n            part = \",%s:%s\" % (quote(mime), encode(form))\n        except Exception:\n            continue\n        if isinstance(mime, str) and len(part) <= room:  # a form that is too large is left out\n            room -= len(part)\n            parts.append(part)\n    return \"\".join(parts) + \"}\" if len(parts) > 1 else None\n\n\ndef display_frame(value):\n    found = forms(value)\n    if display == \"results\" or found:\n        try:\n            found.setdefault(\"text/plain\", shown_text(value))\n        except Exception:\n            pass\n    show_data(data_of(found, True))\n", "adapt": "import posix\nimport sys\n\ndisplayed = []  # figures that the cell has displayed itself\nlast = None     # the figure that show() has displayed last\n\n\ndef adapted(finder, name, path, target):\n    \"\"\"Finds a module for a finder at the head of sys.meta_path, and adapts it when it has been imported.\"\"\"\n    spec = None\n    for other in list(sys.meta_path):\n        spec = None if other is finder else other.find_spec(name, path, target)\n        if spec is not None:\n            break\n    if spec is None:\n        return imitated(name) if name.partition(\".\")[0] == \"IPython\" and shows() else None\n    change, loader = CHANGES.get(name), spec.loader\n    if change and hasattr(loader, \"exec_module\") and not isinstance(loader, type):\n        after(loader, change)\n    return spec\n\n\ndef after(loader, change):\n    \"\"\"Makes a loader change a module once it has run.\"\"\"\n    run = loader.exec_module\n\n    def exec_module(module):\n        run(module)\n        try:\n            change(module)\n        except Exception:\n            pass  # an unknown version of the package: it works as it is\n\n    loader.exec_module = exec_module\n\n\ndef change_pandas(pandas):\n    \"\"\"Makes tables as wide as in a notebook. Otherwise pandas cuts them at the 80 columns of a terminal.\"\"\"\n    pandas.set_option(\"display.width\", 1000)\n    pandas.set_option(\"display.max_columns\", 20)\n\n\n\ndef change_pyplot(pyplot):\n    \"\"\"Makes show() display all figures and close them, as in a notebook.\"\"\"\n    plain_show, plain_save = pyplot.show, getattr(pyplot, \"savefig\", None)\n\n    def show(*arguments, **options):\n        if shows():\n            displayed.clear()\n            show_figures(pyplot)\n        else:\n            plain_show(*arguments, **options)\n\n    def savefig(*arguments, **options):\n        if last is not None and not pyplot.get_fignums():  # show() has closed it; without this, the file would be empty\n            return last.savefig(*arguments, **options)\n        return plain_save(*arguments, **options)\n\n    show.__doc__, savefig.__doc__ = plain_show.__doc__, plain_save.__doc__\n    pyplot.show, pyplot.savefig = show, savefig\n    if \"state\" in globals():\n        state[\"end\"] = lambda: shows() and show_figures(pyplot)\n        state[\"drawn\"] = drawn\n    change_figure(sys.modules[\"matplotlib.figure\"].Figure)\n\n\ndef change_figure(kind):\n    \"\"\"Makes figures remember the files that they were saved to.\"\"\"\n    save = kind.savefig\n\n    def savefig(figure, *arguments, **options):\n        result = save(figure, *arguments, **options)\n        name = arguments[0] if arguments else options.get(\"fname\")\n        try:\n            figure.__dict__.setdefault(\"_saved_as\", []).append(sys.modules[\"os\"].path.abspath(name))\n            figure.stale = False  # becomes true when the figure is changed\n        except TypeError:\n            pass  # not a path\n        return result\n\n    savefig.__doc__, savefig.__name__ = save.__doc__, \"savefig\"\n    kind.savefig = savefig\n\n\ndef saved(figure):\n    \"\"\"Returns the type and bytes of the last picture that a figure was saved to, if the figure was not changed since.\n    The same bytes as a file and as a shown value count as one picture, so files that the run hands over come first.\n    The bytes are None if they do not fit into a frame and the file is one of these.\"\"\"\n    names = figure.__dict__.get(\"_saved_as\", ())\n    work = (sys.modules[\"os\"].environ.get(\"SANDBOX_OUTPUT_DIR\") or \"/mnt/data\") + \"/\"\n    for name in sorted(reversed(names if names and not figure.stale else ()), key=lambda name: not name.startswith(work)):\n        try:\n            with open(name, \"rb\") as file:\n                data = file.read(FRAME)\n        except OSError:\n            continue\n        for mime, mark in (\"image/png\", b\"\\x89PNG\"), (\"image/jpeg\", b\"\\xff\\xd8\\xff\"):\n            if data.startswith(mark):\n                if fits(data):\n                    return mime, data\n                if name.startswith(work) and \"/.\" not in name:\n                    return mime, None\n    return None\n\n\ndef drawn(value):\n    \"\"\"Reports whether a value is only parts of open figures, such as the lines that plot() returns: the picture says more.\"\"\"\n    parts = value if type(value) in (list, tuple) and value else [value]\n    figure = sys.modules[\"matplotlib.figure\"].Figure\n    return bool(sys.modules[\"matplotlib.pyplot\"].get_fignums()) and all(\n        type(part).__module__.startswith(\"matplotlib.\") and not isinstance(part, figure) for part in parts)\n\n\ndef fits(data):\n    return len(data) * 4 < FRAME * 3 - 10000\n\n\ndef picture(figure):\n    \"\"\"Returns a figure as a PNG that fits into a frame, or None.\"\"\"\n    from io import BytesIO\n    size = max(*figure.get_size_inches(), 1)\n    for dpi in \"figure\", 800 / size, 300 / size:\n        out = BytesIO()\n        if not figure.axes and not figure.lines and not figure.texts and not figure.images:\n            figure.savefig(out, format=\"png\", dpi=dpi)\n        else:\n            figure.savefig(out, format=\"png\", dpi=dpi, bbox_inches=\"tight\")\n        if fits(out.getvalue()):\n            return out.getvalue()\n\n\ndef add_picture(value, found):\n    \"\"\"Adds the picture of a figure to the forms of a value.\"\"\"\n    if isinstance(value, sys.modules[\"matplotlib.figure\"].Figure):\n        mime, data = saved(value) or (\"image/png\", picture(value))\n        if data and \"image/png\" not in found:\n            found[mime] = data\n        displayed.append(value)\n\n\ndef show_figures(pyplot):\n    \"\"\"Displays all open figures and closes them.\"\"\"\n    global last\n    numbers = getattr(pyplot, \"get_fignums\", tuple)()\n    try:\n        for number in numbers:\n            figure = last = pyplot.figure(number)\n            if not any(figure is f for f in displayed):\n                if saved(figure) and not saved(figure)[1]:\n                    continue  # the file is shown\n                found = {\"text/plain\": repr(figure)}\n                add_picture(figure, found)\n                show_data(data_of(found, False))\n    finally:\n        if numbers:\n            pyplot.close(\"all\")\n\n\n\ndef show_all(*values, raw=False, display_id=None, **options):\n    \"\"\"Shows values in their richest forms.\"\"\"\n    for value in values:\n        if raw:\n            show_data(data_of(value, False))\n        else:\n            show_values(value)\n    return Handle(display_id) if display_id is not None else None\n\n\ndef publish(data, *arguments, **options):\n    show_data(data_of(data, False))\n\n\ndef nothing_to_do(*arguments, **options):\n    \"\"\"A value that was shown stays.\"\"\"\n\n\nclass Handle:\n    \"\"\"What display() returns for a value with an id. An update is shown as a value of its own.\"\"\"\n\n    def __init__(self, display_id=None):\n        self.display_id = display_id\n\n    def display(self, value, **options):\n        show_values(value)\n\n    update = display\n\n\ndef change_display(module):\n    \"\"\"Makes display() of the real IPython show values; outside a notebook, it prints them.\"\"\"\n    module.display, module.publish_display_data = where_shown(show_all, module.display), where_shown(publish, module.publish_display_data)\n    module.clear_output, module.update_display = where_shown(nothing_to_do, module.clear_output), where_shown(show_all, module.update_display)\n\n\ndef where_shown(show, plain):\n    \"\"\"Returns a function that calls show where values can be shown, and plain elsewhere.\"\"\"\n    def function(*arguments, **options):\n        return (show if shows() else plain)(*arguments, **options)\n\n    function.__name__, function.__doc__ = plain.__name__, plain.__doc__\n    return function\n\n\nclass Shown:\n    \"\"\"A value of IPython.display: a text or bytes with a type, given as such or as the name of a file.\"\"\"\n    mime = \"text/plain\"\n\n    def __init__(self, data=None, url=None, filename=None, metadata=None, **options):\n        if data is not None and url is None and filename is None and isinstance(data, str) and self.is_file(data):\n            filename = data\n        if filename is not None:\n            with open(filename, \"rb\") as file:\n                data = file.read()\n            if not self.mime.startswith(\"image/\") or self.mime == \"image/svg+xml\":\n                data = data.decode(\"utf-8\")\n        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata\n\n    def is_file(self, data):\n        return False\n\n    def _repr_mimebundle_(self, include=None, exclude=None):\n        return {} if self.data is None else {self.mime: self.data, \"text/plain\": repr(self)}\n\n    def __repr__(self):\n        return \"<IPython.core.display.%s object>\" % type(self).__name__\n\n\nclass Pretty(Shown):\n    def __repr__(self):\n        return str(self.data)\n\n\nclass JSON(Shown):\n    mime = \"application/json\"\n\n    def __init__(self, data=None, url=None, filename=None, **options):\n        super().__init__(data, url, filename)\n        if isinstance(self.data, str):\n            import json\n            self.data = json.loads(self.data)\n\n\nclass Math(Shown):\n    mime = \"text/latex\"\n\n    def _repr_mimebundle_(self, include=None, exclude=None):\n        return {self.mime: \"$\\\\displaystyle %s$\" % self.data.strip(\"$\"), \"text/plain\": repr(self)}\n\n\nclass Image(Shown):\n    mime = \"image/png\"\n\n    def is_file(self, data):\n        return True\n\n    def _repr_mimebundle_(self, include=None, exclude=None):\n        if self.data is None:\n            return {\"text/html\": '<img src=\"%s\"/>' % self.url, \"text/plain\": repr(self)}\n        jpeg = self.data[:3] == b\"\\xff\\xd8\\xff\"\n        return {\"image/jpeg\" if jpeg else \"image/png\": self.data, \"text/plain\": repr(self)}\n\n\nclass IFrame(Shown):\n    mime = \"text/html\"\n\n    def __init__(self, src, width, height, **options):\n        super().__init__('<iframe src=\"%s\" width=\"%s\" height=\"%s\"></iframe>' % (src, width, height))\n\n\ndef kinds():\n    \"\"\"The classes and functions of IPython.display.\"\"\"\n    found = {c.__name__: c for c in (Pretty, JSON, Math, Image, IFrame)}\n    for name, mime in (\"HTML\", \"text/html\"), (\"Markdown\", \"text/markdown\"), (\"Latex\", \"text/latex\"), (\"SVG\", \"image/svg+xml\"), (\"Code\", \"text/plain\"), (\"Javascript\", \"text/plain\"):\n        found[name] = type(name, (Shown,), {\"mime\": mime})\n    show_all.__name__ = \"display\"\n    for kind in found.values():\n        kind.__module__ = \"IPython.core.display\"\n    return dict(found, DisplayObject=Shown, DisplayHandle=Handle, display=show_all, update_display=show_all, publish_display_data=publish, clear_output=nothing_to_do)\n\n\nclass Imitation:\n    \"\"\"Loads the part of IPython that programs outside a notebook use, if IPython is not installed.\"\"\"\n\n    def create_module(self, spec):\n        return None\n\n    def exec_module(self, module):\n        if module.__name__ == \"IPython\":\n            module.__dict__.update(get_ipython=lambda: None, version_info=(8, 0, 0, \"\"), __version__=\"8.0.0\", display=show_all)\n        elif module.__name__ != \"IPython.core\":\n            module.__dict__.update(kinds_once())\n\n\ndef kinds_once():\n    if \"names\" not in kinds.__dict__:\n        kinds.names = kinds()\n    return kinds.names\n\n\ndef imitated(name):\n    if name in (\"IPython\", \"IPython.core\", \"IPython.display\", \"IPython.core.display\", \"IPython.core.display_functions\"):\n        from _frozen_importlib import ModuleSpec\n        return ModuleSpec(name, Imitation(), is_package=name in (\"IPython\", \"IPython.core\"))\n\n\nCHANGES = {\"pandas\": change_pandas, \"matplotlib.pyplot\": change_pyplot, \"IPython.core.display_functions\": change_display}\n", "fix": "# Which names a program loads and never binds. This file is embedded in the check of Python\n# code and in the drivers of Python. To start fast, it imports only modules that are built in.\nAST = compile(\"\", \"\", \"exec\", 0x400).__class__.__mro__[-2]  # importing _ast would take longer\n\nKNOWN = {\"base64\": (\"\", \"import base64\"), \"collections\": (\"\", \"import collections\"), \"csv\": (\"\", \"import csv\"), \"functools\": (\"\", \"import functools\"), \"hashlib\": (\"\", \"import hashlib\"), \"io\": (\"\", \"import io\"), \"itertools\": (\"\", \"import itertools\"), \"json\": (\"\", \"import json\"), \"math\": (\"\", \"import math\"), \"os\": (\"\", \"import os\"), \"pathlib\": (\"\", \"import pathlib\"), \"random\": (\"\", \"import random\"), \"re\": (\"\", \"import re\"), \"sys\": (\"\", \"import sys\"), \"time\": (\"\", \"import time\"), \"typing\": (\"\", \"import typing\"), \"Path\": (\"\", \"from pathlib import Path\"), \"timedelta\": (\"\", \"from datetime import timedelta\"), \"datetime\": (\"\", \"from datetime import datetime\"), \"requests\": (\"requests\", \"import requests\"), \"np\": (\"numpy\", \"import numpy as np\"), \"numpy\": (\"numpy\", \"import numpy\"), \"pd\": (\"pandas\", \"import pandas as pd\"), \"pandas\": (\"pandas\", \"import pandas\"), \"plt\": (\"matplotlib\", \"import matplotlib.pyplot as plt\"), \"matplotlib\": (\"matplotlib\", \"import matplotlib\"), \"BeautifulSoup\": (\"bs4\", \"from bs4 import BeautifulSoup\"), \"bs4\": (\"bs4\", \"import bs4\")}\n\n\ndef kind(node):\n    return type(node).__name__\n\n\ndef nodes(tree):\n    \"\"\"Yields all nodes in the order of the text, without recursion.\"\"\"\n    stack = [tree]\n    while stack:\n        node = stack.pop()\n        yield node\n        for name in reversed(node._fields):\n            value = getattr(node, name, None)\n            if isinstance(value, AST):\n                stack.append(value)\n            elif isinstance(value, list):\n                stack.extend(x for x in reversed(value) if isinstance(x, AST))\n\n\nclass Names:\n    \"\"\"The names that a program loads and binds.\"\"\"\n\n    def __init__(self, tree):\n        self.bound, self.loaded, self.star = set(), {}, False\n        self.imported, self.values, self.all = {}, {}, list(nodes(tree))\n        methods = {id(f) for c in self.all if kind(c) == \"ClassDef\" for f in c.body}\n        for node in self.all:\n            name = kind(node)\n            if name == \"Name\":\n                if kind(node.ctx) == \"Load\":\n                    self.loaded.setdefault(node.id, node)\n                else:\n                    self.bound.add(node.id)\n            elif name == \"arg\":\n                self.bound.add(node.arg)\n            elif name in (\"FunctionDef\", \"AsyncFunctionDef\", \"ClassDef\"):\n                if id(node) not in methods:\n                    self.bound.add(node.name)\n            elif name in (\"Import\", \"ImportFrom\"):\n                self.imports(node)\n            elif name in (\"ExceptHandler\", \"MatchAs\", \"MatchStar\", \"TypeVar\", \"ParamSpec\", \"TypeVarTuple\") and getattr(node, \"name\", None):\n                self.bound.add(node.name)\n            elif name == \"MatchMapping\" and node.rest:\n                self.bound.add(node.rest)\n            if name == \"Assign\" and len(node.targets) == 1 and kind(node.targets[0]) == \"Name\":\n                self.values[node.targets[0].id] = node.value\n\n    def imports(self, node):\n        for a in node.names:\n            if kind(node) == \"Import\":\n                own, path = a.asname or a.name.split(\".\")[0], a.name if a.asname else a.name.split(\".\")[0]\n            else:\n                own, path = a.asname or a.name, (node.module or \"\") + \".\" + a.name\n            if own == \"*\":\n                self.star = True\n            self.bound.add(own)\n            self.imported[own] = path\n\n    def missing(self):\n        \"\"\"The known names that the program lacks, in the order of their use, each with its package and its import statement.\"\"\"\n        if self.star:\n            return []\n        return [(name, *self.known(name)) for name in self.loaded if name in KNOWN and name not in self.bound]\n\n    def known(self, name):\n        \"\"\"Whether \"datetime\" means the module or the class is seen from its use.\"\"\"\n        inner = (\"datetime\", \"date\", \"time\", \"timedelta\", \"timezone\")\n        for node in self.all if name == \"datetime\" else ():\n            if kind(node) == \"Attribute\" and kind(node.value) == \"Name\" and node.value.id == name and node.attr in inner:\n                return \"\", \"import datetime\"\n        return KNOWN[name]\n\nimport sys\nimport posix\n\n\ndef catches_all(handler):\n    \"\"\"Whether an exception handler may catch NameError.\"\"\"\n    caught = handler.type.elts if kind(handler.type) == \"Tuple\" else [handler.type]\n    for one in caught:\n        name = getattr(one, \"attr\", None) or getattr(one, \"id\", None) or \"\"\n        if name in (\"Exception\", \"BaseException\") or not name[:1].isupper():\n            return True\n    return False\n\n\ndef guarded(node):\n    \"\"\"The statements of a \"try\" or \"with\" that go on after a NameError.\"\"\"\n    if kind(node) in (\"Try\", \"TryStar\") and any(map(catches_all, node.handlers)):\n        return node.body\n    if kind(node) in (\"With\", \"AsyncWith\"):\n        called = [getattr(item.context_expr, \"func\", None) for item in node.items]\n        if any(\"suppress\" in name or \"raises\" in name.lower() for name in (getattr(f, \"attr\", None) or getattr(f, \"id\", \"\") for f in called)):\n            return node.body\n    return []\n\n\ndef tested(name, program):\n    \"\"\"Whether a statement that goes on after a NameError only looks whether the name is there: it neither calls it\n    nor does anything with an attribute of it.\"\"\"\n    for outer in program.all:\n        for statement in guarded(outer):\n            used = set()\n            for node in nodes(statement):\n                if kind(node) == \"Attribute\":\n                    used.add(id(node.value))\n                elif kind(node) == \"Call\":\n                    used.add(id(node.func))\n                elif kind(node) in (\"Expr\", \"Assign\", \"AnnAssign\", \"Return\") and kind(node.value) == \"Attribute\" and of(node.value, name):\n                    return True\n                elif kind(node) == \"Name\" and node.id == name and id(node) not in used:\n                    return True\n    return False\n\n\ndef lists_names(program):\n    \"\"\"Whether the program calls dir() or vars() for its own names, or names its own module otherwise than to compare __name__.\"\"\"\n    harmless = set()\n    for node in program.all:\n        if kind(node) == \"Call\" and node.args:\n            harmless.add(id(node.func))\n        elif kind(node) == \"Compare\" and any(kind(side) == \"Name\" and side.id == \"__name__\" for side in [node.left, *node.comparators]):\n            harmless.update(map(id, [node.left, *node.comparators]))\n    return any(kind(node) == \"Name\" and node.id in (\"dir\", \"vars\") and id(node) not in harmless\n               or kind(node) == \"Constant\" and node.value == \"__main__\" and id(node) not in harmless for node in program.all)\n\n\ndef of(node, name):\n    \"\"\"Whether the expression is the name or an attribute of it.\"\"\"\n    while kind(node) == \"Attribute\":\n        node = node.value\n    return kind(node) == \"Name\" and node.id == name\n\n\ndef shadowed():\n    \"\"\"Takes the program's directory out of sys.path. A file of the program never runs because of a missing import.\"\"\"\n    if sys.path and sys.path[0] in (\"\", posix.getcwd()):\n        return [sys.path.pop(0)]\n    return []\n\n\ndef bind(tree, found, main):\n    \"\"\"Binds the names of found that the tree lacks. Returns what was done, as the check of code words it.\"\"\"\n    program, done = Names(tree), []\n    if lists_names(program):\n        return done\n    first = shadowed()\n    try:\n        for name, _, statement in program.missing():\n            if name not in found or tested(name, program):\n                continue\n            names = {\"__name__\": \"sandboxmcp\"}\n            try:\n                exec(statement, names)\n            except Exception:  # it is not installed: the program reports its NameError\n                continue\n            main[name] = names[name]\n            done.append(\"added \" + statement)\n    finally:\n        sys.path[:0] = first\n    return list(dict.fromkeys(done))\n", "slow": "import posix\nimport sys\n\n\ndef later(name, *arguments):\n    names = dict(globals())\n    exec(compile(text, driver, \"exec\"), names)\n    return names[name](*arguments)\n\n\ndef watch():\n    \"\"\"Shows the value of the last expression, once.\"\"\"\n    hook = sys.displayhook\n\n    def displayhook(value):\n        sys.displayhook = hook\n        if value is None:\n            return\n        hidden = \"drawn\" in state and state[\"drawn\"](value)\n        if display == \"stdout\" and not hidden:\n            hook(value)\n        else:\n            import builtins\n            builtins._ = value\n        if channel and not hidden and (display == \"results\" or any(n.startswith(\"_repr_\") for n in dir(type(value)))):\n            later(\"display_frame\", value)\n\n    sys.displayhook = displayhook\n\n\ndef counts_bytes(value):\n    \"\"\"Whether the expression is a call such as sys.stdout.write(...), whose value, a number of bytes, is not worth showing.\"\"\"\n    return (type(value).__name__ == \"Call\" and type(value.func).__name__ == \"Attribute\"\n            and value.func.attr in (\"write\", \"write_text\", \"write_bytes\"))\n\n\ndef mend(text, found):\n    \"\"\"Binds the names that the program lacks, and says so on the channel. That may run code of packages, which cannot\n    say after \"compiled\" that the program was not compiled.\"\"\"\n    if channel:\n        try:\n            posix.write(3, b'\\0\\0\\0\\x13{\"type\":\"compiled\"}')\n        except OSError:\n            pass\n    names = {\"__name__\": \"sandboxmcp\", \"__builtins__\": __builtins__}\n    exec(compile(fix, driver, \"exec\"), names)\n    done = names[\"bind\"](compile(text, path, \"exec\", 0x400, True), found, main)\n    if done and channel:\n        done = '{\"type\":\"fixed\",\"fixes\":[\"%s\"]}' % '\",\"'.join(done)\n        try:\n            posix.write(3, len(done).to_bytes(4, \"big\") + done.encode(\"ascii\"))\n        except OSError:\n            pass\n\n\ndef slowly():\n    last, lacking = None, found\n    try:\n        with open(path, \"rb\") as file:\n            text = code = file.read()\n        if display == \"none\":\n            code = compile(code, path, \"exec\", 0, True)\n        else:\n            tree = compile(code, path, \"exec\", 0x400, True)  # the syntax tree\n            if tree.body and type(tree.body[-1]).__name__ == \"Expr\" and not counts_bytes(tree.body[-1].value):\n                last = tree.body.pop()\n            code = compile(tree, path, \"exec\", 0, True)\n            if last is not None:\n                from _ast import Interactive\n                last = compile(Interactive([last]), path, \"single\", code.co_flags & 0x1FE0000, True)\n            tree = None\n        try:\n            if lacking is None and display != \"figures\":\n                lacking = lacks([code, last] if last else [code], text, main)\n            if lacking:\n                mend(text, lacking)\n        except Exception:  # the tree nests too deeply: the program runs as it is\n            pass\n        text = None\n    except Exception as error:\n        if ended:\n            ended.how = error\n        later(\"refuse\", error)\n        raise\n    start()\n    try:\n        exec(code, main)\n        if last is not None:\n            watch()\n            exec(last, main)\n    except SystemExit as error:\n        if ended:\n            ended.how = error.code\n        raise\n    except BaseException as error:\n        if ended:\n            ended.how = error\n        later(\"tell\", error)\n        raise\n"})()
