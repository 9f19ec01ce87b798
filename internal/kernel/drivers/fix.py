# Binds the known names that a program lacks as globals, before it runs. It is compiled only
# when lacks.py has found such names. The rule of pynames precedes this text.
#
# A program that tests whether a name is bound must not change. lacks.py leaves a program
# alone that could see the difference by a builtin or by NameError. This file adds the
# tests that a handler of all exceptions allows.
import sys
import posix


def catches_all(handler):
    """Whether an exception handler may catch NameError."""
    caught = handler.type.elts if kind(handler.type) == "Tuple" else [handler.type]
    for one in caught:
        name = getattr(one, "attr", None) or getattr(one, "id", None) or ""
        if name in ("Exception", "BaseException") or not name[:1].isupper():
            return True
    return False


def guarded(node):
    """The statements of a "try" or "with" that go on after a NameError."""
    if kind(node) in ("Try", "TryStar") and any(map(catches_all, node.handlers)):
        return node.body
    if kind(node) in ("With", "AsyncWith"):
        called = [getattr(item.context_expr, "func", None) for item in node.items]
        if any("suppress" in name or "raises" in name.lower() for name in (getattr(f, "attr", None) or getattr(f, "id", "") for f in called)):
            return node.body
    return []


def tested(name, program):
    """Whether a statement that goes on after a NameError only looks whether the name is there: it neither calls it
    nor does anything with an attribute of it."""
    for outer in program.all:
        for statement in guarded(outer):
            used = set()
            for node in nodes(statement):
                if kind(node) == "Attribute":
                    used.add(id(node.value))
                elif kind(node) == "Call":
                    used.add(id(node.func))
                elif kind(node) in ("Expr", "Assign", "AnnAssign", "Return") and kind(node.value) == "Attribute" and of(node.value, name):
                    return True
                elif kind(node) == "Name" and node.id == name and id(node) not in used:
                    return True
    return False


def lists_names(program):
    """Whether the program calls dir() or vars() for its own names, or names its own module otherwise than to compare __name__."""
    harmless = set()
    for node in program.all:
        if kind(node) == "Call" and node.args:
            harmless.add(id(node.func))
        elif kind(node) == "Compare" and any(kind(side) == "Name" and side.id == "__name__" for side in [node.left, *node.comparators]):
            harmless.update(map(id, [node.left, *node.comparators]))
    return any(kind(node) == "Name" and node.id in ("dir", "vars") and id(node) not in harmless
               or kind(node) == "Constant" and node.value == "__main__" and id(node) not in harmless for node in program.all)


def of(node, name):
    """Whether the expression is the name or an attribute of it."""
    while kind(node) == "Attribute":
        node = node.value
    return kind(node) == "Name" and node.id == name


def shadowed():
    """Takes the program's directory out of sys.path. A file of the program never runs because of a missing import."""
    if sys.path and sys.path[0] in ("", posix.getcwd()):
        return [sys.path.pop(0)]
    return []


def bind(tree, found, main):
    """Binds the names of found that the tree lacks. Returns what was done, as the check of code words it."""
    program, done = Names(tree), []
    if lists_names(program):
        return done
    first = shadowed()
    try:
        for name, _, statement in program.missing():
            if name not in found or tested(name, program):
                continue
            names = {"__name__": "sandboxmcp"}
            try:
                exec(statement, names)
            except Exception:  # it is not installed: the program reports its NameError
                continue
            main[name] = names[name]
            done.append("added " + statement)
    finally:
        sys.path[:0] = first
    return list(dict.fromkeys(done))
