# IPython syntax: lines that begin with % or !, and names with a question mark. It is used
# only for cells that are not valid Python. Each such line is replaced by a call on the
# same line, so line numbers do not change.
import re

ASSIGNED = re.compile(r"(\s*)([A-Za-z_][\w., \t\[\]'\"]*?)\s*=\s*([!%])(?!=)\s*(.*)\Z", re.S)
HELP = re.compile(r"(\s*)(\?{0,2})\s*([A-Za-z_][\w.]*)(\?{0,2})\s*\Z")
INSTALL = re.compile(r"(?:^|[;&|(]\s*)(?:sudo\s+)?(?:(?:\S*/)?python[\d.]*\s+-m\s+)?(?:uv\s+|\S*/)?(?:pip[\d.]*|conda|mamba|uv)\s+(?:install|add)\b")


class UsageError(Exception):
    """A line of IPython syntax that is not supported."""
    __module__ = "builtins"


def dedented(text):
    """Returns the cell without the indentation of its first statement. As in IPython, lines that do not begin with it
    stay as they are: those of a string, or those of a cell that is indented wrongly."""
    lines = text.split("\n")
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    indent = first[:len(first) - len(first.lstrip())]
    return "\n".join(line[len(indent):] if line.startswith(indent) else line for line in lines) if indent else text


def transform(text):
    """Returns the cell as Python; unchanged if it has no IPython syntax."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    if first < len(lines) and lines[first].startswith("%%"):
        name, _, rest = lines[first][2:].strip().partition(" ")
        if name != "time":
            body = "\n".join(lines[first + 1:])
            return "\n" * first + "__sandbox_magic__(%r, %r, %r)" % ("%%" + name, rest.strip(), body)
        lines[first] = "__sandbox_magic__('%%time', '')"
    out, i, inside = [], 0, State()
    while i < len(lines):
        line, taken = lines[i], 1
        call = None
        if inside.at_start():
            whole = line
            while begins(line) and whole.endswith("\\") and i + taken < len(lines):
                whole = whole[:-1] + lines[i + taken]
                taken += 1
            call = rewritten(whole)
        if call is None:
            taken = 1
            inside.read(line)
            out.append(line)
        else:
            out.extend([call] + [""] * (taken - 1))
        i += taken
    return "\n".join(out)


def begins(line):
    return line.lstrip()[:1] in ("!", "%") or ASSIGNED.match(line)


def rewritten(line):
    """Returns the call that replaces a line of IPython syntax, or None."""
    bare = line.lstrip()
    indent = line[:len(line) - len(bare)]
    if bare.startswith("!!"):
        return "%s__sandbox_magic__('=!', %r)" % (indent, bare[2:].strip())
    if bare.startswith("!"):
        return "%s__sandbox_magic__('!', %r)" % (indent, bare[1:].strip())
    if bare.startswith("%") and bare[1:2].isalpha():
        name, _, rest = bare[1:].partition(" ")
        return "%s__sandbox_magic__(%r, %r)" % (indent, "%" + name.strip(), rest.strip())
    found = ASSIGNED.match(line)
    if found:
        indent, target, kind, rest = found.groups()
        name, _, rest = ("=!", None, rest) if kind == "!" else ("%" + rest.partition(" ")[0], None, rest.partition(" ")[2])
        return "%s%s = __sandbox_magic__(%r, %r)" % (indent, target, name, rest.strip())
    found = HELP.match(line)
    if found and (found.group(2) or found.group(4)):
        return "%s__sandbox_magic__(%r, %r)" % (found.group(1), found.group(2) or found.group(4), found.group(3))
    return None


class State:
    """Tracks whether the next line begins a statement: it is not in a string, in brackets or after a backslash."""

    def __init__(self):
        self.quote, self.depth, self.continued = None, 0, False

    def at_start(self):
        return not self.quote and not self.depth and not self.continued

    def read(self, line):
        i, self.continued = 0, False
        while i < len(line):
            c = line[i]
            if self.quote:
                if c == "\\":
                    i += 1
                elif line.startswith(self.quote, i):
                    i += len(self.quote) - 1
                    self.quote = None
            elif c == "#":
                return
            elif c in "'\"":
                self.quote = c * 3 if line.startswith(c * 3, i) else c
                i += len(self.quote) - 1
            elif c in "([{":
                self.depth += 1
            elif c in ")]}":
                self.depth = max(0, self.depth - 1)
            i += 1
        self.continued = line.endswith("\\")
        if self.quote and len(self.quote) == 1 and not self.continued:
            self.quote = None


def magic(name, rest, body=None):
    """Carries out one line of IPython syntax."""
    if name in ("!", "=!"):
        return shell(rest, name == "=!")
    if name in ("?", "??"):
        return explain(rest, name)
    if name == "%%time":
        now.ends.append(clock())
        return None
    if name.startswith("%%"):
        do = CELLS.get(name[2:])
        if do is None:
            raise UsageError("Cell magic `%s` not found." % name)
        return do(rest, body)
    do = LINES.get(name[1:])
    if do is None:
        raise UsageError("Line magic function `%s` not found." % name)
    return do(rest)


# -- shells

class Lines(list):
    """The lines that a command has printed."""
    l = property(list)
    n = property("\n".join)
    s = property(" ".join)


def expanded(command):
    """Returns the command with {expression} and $name replaced by Python values, where they are defined."""
    def value(found):
        text = found.group(1) or found.group(2)
        try:
            return str(eval(text, main)) if found.group(1) else str(main[text])
        except Exception:
            return found.group(0)

    return re.sub(r"(?<![$\\])\{([^{}\s'\"$:][^{}]*)\}|(?<![\\$])\$([A-Za-z_]\w*)", value, command)


def flush():
    for stream in sys.stdout, sys.stderr:
        if stream is not None:
            stream.flush()


def shell(command, caught):
    import subprocess
    command = expanded(command)
    if not caught and installs(command):
        main["_exit_code"] = 0
        return
    if INSTALL.search(command):
        check_install()
    flush()
    program = next((p for p in ("/bin/bash", "/usr/bin/bash") if os.path.exists(p)), "/bin/sh")
    done = subprocess.run([program, "-c", command], stdout=subprocess.PIPE if caught else None, stderr=subprocess.STDOUT if caught else None)
    main["_exit_code"] = done.returncode
    if caught:
        return Lines(done.stdout.decode("utf-8", "replace").splitlines())


def script(program):
    def do(rest, body):
        import subprocess
        if any(INSTALL.search(line.strip()) for line in body.split("\n")):
            check_install()
        flush()
        subprocess.run([program, "-c", body, program] + rest.split(), check=True)

    return do


def check_install():
    """Refuses to install packages if no host can be reached: pip would try for a minute and not say why it fails."""
    from json import loads
    try:
        opened = loads(environ["SANDBOX_POLICY"])["network"]["allowed"]
    except (KeyError, TypeError, ValueError):
        opened = None
    if not opened and not any(environ.get(name) for name in ("PIP_NO_INDEX", "PIP_INDEX_URL")):
        raise UsageError("pip cannot download packages: no host is open to this session. Packages that are there can be imported as they are.")


IGNORED = {"-q", "-qq", "--quiet", "-U", "--upgrade", "--user", "--no-cache-dir", "--disable-pip-version-check", "-y", "--no-input", "--save", "-S", "--silent", "--no-audit", "--no-fund"}
SIMPLE = re.compile(r"(?:(?:\S*/)?python[\d.]*\s+-m\s+)?(?:uv\s+)?(pip[\d.]*|npm)\s+(?:install|i|add)\s+(.+)\Z")


def installs(command, shell=True):
    """Has the server install the packages of a plain command such as "pip install NAME". Returns False if the command
    is another, or if the server installs none: then it is run as it is."""
    import shlex
    found = SIMPLE.match(command.strip())
    if not found:
        return False
    parser = shlex.shlex(found.group(2), posix=True, punctuation_chars=";&|<>()`$#" if shell else "")
    parser.whitespace_split, parser.commenters = True, ""
    try:
        words = list(parser)
    except ValueError:
        return False
    if shell and any(set(word) <= set(";&|<>()`$#") for word in words):
        return False
    names = [word for word in words if word not in IGNORED]
    if not names or any(name.startswith("-") for name in names):
        return False
    answer = ask_for("node" if found.group(1) == "npm" else "python", names)
    if answer.get("missing"):
        return False
    if not answer["ok"]:
        raise UsageError(answer["output"])
    if answer.get("packages"):
        see_packages(answer["packages"])
    for name, value in (answer.get("env") or {}).items():
        now.env.setdefault(name, environ.get(name))
        environ[name] = value
    print(answer["output"])
    return True


def ask_for(language, names):
    """Asks the server for packages, and returns its answer. An interrupt is delivered after it."""
    from json import dumps
    names = dumps(names)
    if len(names) > 16000:  # a larger frame would end the interpreter
        raise UsageError("these are too many packages for one command: use several")
    if get_ident() != main_thread or not send("install", ',"language":"%s","packages":%s' % (language, names)):
        return {"missing": True}
    handler = signal(SIGINT, note)
    try:
        return parse_json(receive(int.from_bytes(receive(4), "big")).decode("utf-8"))
    finally:
        signal(SIGINT, default_int_handler if handler is None else handler)
        if now.interrupted:
            now.interrupted = False
            if callable(handler):
                handler(SIGINT, None)


def pip(rest):
    if installs("pip " + expanded(rest), False):
        return
    if rest.split()[:1] in (["install"], ["add"]):
        check_install()
    shell("%s -m pip %s" % (sys.executable, rest), False)


# -- times

def seconds(value):
    for unit, factor in ("s", 1), ("ms", 1e3), ("µs", 1e6):
        if value * factor >= 1:
            return "%.3g %s" % (value * factor, unit)
    return "%.3g ns" % (value * 1e9)


def clock():
    import time
    wall, t = time.perf_counter(), os.times()

    def tell():
        u = os.times()
        user, system = u.user - t.user, u.system - t.system
        print("CPU times: user %s, sys: %s, total: %s" % (seconds(user), seconds(system), seconds(user + system)))
        print("Wall time: %s" % seconds(time.perf_counter() - wall))

    return tell


def time_line(rest):
    try:
        code = compile(rest, "<timed line>", "eval")
    except SyntaxError:
        code = compile(rest, "<timed line>", "exec")
    tell = clock()
    value = eval(code, main)
    tell()
    return value


def timeit(rest, body=None):
    import math
    import timeit
    found = re.match(r"((?:-[nr]\s*\d+\s+|-[qo]\s+)*)(.*)\Z", rest + " ", re.S)
    options = dict(re.findall(r"-([nr])\s*(\d+)", found.group(1)))
    statement, setup = (found.group(2).strip(), "pass") if body is None else (body, found.group(2).strip() or "pass")
    timer = timeit.Timer(statement, setup, globals=main)
    count, rounds = int(options.get("n", 0)), int(options.get("r", 7))
    if not count:
        count = timer.autorange()[0]
    times = [t / count for t in timer.repeat(rounds, count)]
    mean = math.fsum(times) / len(times)
    spread = math.sqrt(math.fsum((t - mean) ** 2 for t in times) / len(times))
    print("%s ± %s per loop (mean ± std. dev. of %d run%s, %s loop%s each)" % (
        seconds(mean), seconds(spread), rounds, "s" * (rounds != 1), format(count, ","), "s" * (count != 1)))


# -- the rest

def cd(rest):
    os.chdir(os.path.expanduser(rest.strip("'\"") or "~"))
    print(os.getcwd())


def env(rest):
    if not rest:
        return dict(environ)
    name, given, value = rest.partition("=") if "=" in rest else rest.partition(" ")
    if not given:
        try:
            return environ[name]
        except KeyError:
            raise UsageError("Environment does not have key: %s" % name) from None
    environ[name.strip()] = expanded(value.strip())
    print("env: %s=%s" % (name.strip(), environ[name.strip()]))


def names():
    return sorted(n for n in main if not n.startswith("_") and type(main[n]).__name__ != "module")


def who(rest):
    print("\t".join(names()) or "Interactive namespace is empty.")


def whos(rest):
    for name in names():
        print("%-20s %-16s %s" % (name, type(main[name]).__name__, repr(main[name]).split("\n")[0][:60]))


def run_file(rest):
    import runpy
    import shlex
    words = shlex.split(rest)
    if not words:
        raise UsageError("%run wants the name of a file.")
    kept, sys.argv = sys.argv, words
    try:
        found = runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.argv = kept
    main.update((n, v) for n, v in found.items() if not (n.startswith("__") and n.endswith("__")))


def write_file(rest, body):
    append = rest.startswith("-a ")
    name = os.path.expanduser(rest[3 * append:].strip().strip("'\""))
    if not name:
        raise UsageError("%%writefile wants the name of a file.")
    print("%s %s" % ("Appending to" if append else "Overwriting" if os.path.exists(name) else "Writing", name))
    with open(name, "a" if append else "w", encoding="utf-8") as file:
        file.write(body if body.endswith("\n") else body + "\n")


def explain(name, marks):
    import inspect
    import pydoc
    try:
        value = eval(name, main)
    except Exception:
        print("Object `%s` not found." % name)
        return
    if marks == "??":
        try:
            print(inspect.getsource(value))
            return
        except (OSError, TypeError):
            pass
    print(pydoc.plain(pydoc.render_doc(value, title="%s")))


def shown(mime):
    def do(rest, body):
        need("later.py")
        show(data_of({mime: body, "text/plain": body[:65536]}, False))

    return do


def nothing(rest):
    pass


LINES = {
    "time": time_line, "timeit": timeit, "cd": cd, "pwd": lambda rest: os.getcwd(), "env": env, "set_env": env,
    "who": who, "whos": whos, "run": run_file, "pip": pip, "conda": pip, "matplotlib": nothing, "config": nothing,
    "sx": lambda rest: shell(rest, True), "system": lambda rest: shell(rest, True),
    "ls": lambda rest: shell("ls " + rest, False), "cat": lambda rest: shell("cat " + rest, False),
}
CELLS = {
    "timeit": timeit, "bash": script("bash"), "sh": script("sh"), "writefile": write_file, "file": write_file,
    "html": shown("text/html"), "HTML": shown("text/html"), "markdown": shown("text/markdown"),
    "latex": shown("text/latex"), "svg": shown("image/svg+xml"), "SVG": shown("image/svg+xml"),
}
