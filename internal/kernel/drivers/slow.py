# Runs the program by compile(): to show the value of its last expression, to bind names that
# it lacks, or to report why it cannot be compiled.
import posix
import sys


def later(name, *arguments):
    names = dict(globals())
    exec(compile(text, driver, "exec"), names)
    return names[name](*arguments)


def watch():
    """Shows the value of the last expression, once."""
    hook = sys.displayhook

    def displayhook(value):
        sys.displayhook = hook
        if value is None:
            return
        hidden = "drawn" in state and state["drawn"](value)
        if display == "stdout" and not hidden:
            hook(value)
        else:
            import builtins
            builtins._ = value
        if channel and not hidden and (display == "results" or any(n.startswith("_repr_") for n in dir(type(value)))):
            later("display_frame", value)

    sys.displayhook = displayhook


def counts_bytes(value):
    """Whether the expression is a call such as sys.stdout.write(...), whose value, a number of bytes, is not worth showing."""
    return (type(value).__name__ == "Call" and type(value.func).__name__ == "Attribute"
            and value.func.attr in ("write", "write_text", "write_bytes"))


def mend(text, found):
    """Binds the names that the program lacks, and says so on the channel. That may run code of packages, which cannot
    say after "compiled" that the program was not compiled."""
    if channel:
        try:
            posix.write(3, b'\0\0\0\x13{"type":"compiled"}')
        except OSError:
            pass
    names = {"__name__": "sandboxmcp", "__builtins__": __builtins__}
    exec(compile(fix, driver, "exec"), names)
    done = names["bind"](compile(text, path, "exec", 0x400, True), found, main)
    if done and channel:
        done = '{"type":"fixed","fixes":["%s"]}' % '","'.join(done)
        try:
            posix.write(3, len(done).to_bytes(4, "big") + done.encode("ascii"))
        except OSError:
            pass


def slowly():
    last, lacking = None, found
    try:
        with open(path, "rb") as file:
            text = code = file.read()
        if display == "none":
            code = compile(code, path, "exec", 0, True)
        else:
            tree = compile(code, path, "exec", 0x400, True)  # the syntax tree
            if tree.body and type(tree.body[-1]).__name__ == "Expr" and not counts_bytes(tree.body[-1].value):
                last = tree.body.pop()
            code = compile(tree, path, "exec", 0, True)
            if last is not None:
                from _ast import Interactive
                last = compile(Interactive([last]), path, "single", code.co_flags & 0x1FE0000, True)
            tree = None
        try:
            if lacking is None and display != "figures":
                lacking = lacks([code, last] if last else [code], text, main)
            if lacking:
                mend(text, lacking)
        except Exception:  # the tree nests too deeply: the program runs as it is
            pass
        text = None
    except Exception as error:
        if ended:
            ended.how = error
        later("refuse", error)
        raise
    start()
    try:
        exec(code, main)
        if last is not None:
            watch()
            exec(last, main)
    except SystemExit as error:
        if ended:
            ended.how = error.code
        raise
    except BaseException as error:
        if ended:
            ended.how = error
        later("tell", error)
        raise
