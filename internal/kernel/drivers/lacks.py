def lacks(codes, text, main, known=frozenset("@known@")):
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
