# Which names a program loads and never binds. This file is embedded in the check of Python
# code and in the drivers of Python. To start fast, it imports only modules that are built in.
AST = compile("", "", "exec", 0x400).__class__.__mro__[-2]  # importing _ast would take longer

KNOWN = "@known@"


def kind(node):
    return type(node).__name__


def nodes(tree):
    """Yields all nodes in the order of the text, without recursion."""
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        for name in reversed(node._fields):
            value = getattr(node, name, None)
            if isinstance(value, AST):
                stack.append(value)
            elif isinstance(value, list):
                stack.extend(x for x in reversed(value) if isinstance(x, AST))


class Names:
    """The names that a program loads and binds."""

    def __init__(self, tree):
        self.bound, self.loaded, self.star = set(), {}, False
        self.imported, self.values, self.all = {}, {}, list(nodes(tree))
        methods = {id(f) for c in self.all if kind(c) == "ClassDef" for f in c.body}
        for node in self.all:
            name = kind(node)
            if name == "Name":
                if kind(node.ctx) == "Load":
                    self.loaded.setdefault(node.id, node)
                else:
                    self.bound.add(node.id)
            elif name == "arg":
                self.bound.add(node.arg)
            elif name in ("FunctionDef", "AsyncFunctionDef", "ClassDef"):
                if id(node) not in methods:
                    self.bound.add(node.name)
            elif name in ("Import", "ImportFrom"):
                self.imports(node)
            elif name in ("ExceptHandler", "MatchAs", "MatchStar", "TypeVar", "ParamSpec", "TypeVarTuple") and getattr(node, "name", None):
                self.bound.add(node.name)
            elif name == "MatchMapping" and node.rest:
                self.bound.add(node.rest)
            if name == "Assign" and len(node.targets) == 1 and kind(node.targets[0]) == "Name":
                self.values[node.targets[0].id] = node.value

    def imports(self, node):
        for a in node.names:
            if kind(node) == "Import":
                own, path = a.asname or a.name.split(".")[0], a.name if a.asname else a.name.split(".")[0]
            else:
                own, path = a.asname or a.name, (node.module or "") + "." + a.name
            if own == "*":
                self.star = True
            self.bound.add(own)
            self.imported[own] = path

    def missing(self):
        """The known names that the program lacks, in the order of their use, each with its package and its import statement."""
        if self.star:
            return []
        return [(name, *self.known(name)) for name in self.loaded if name in KNOWN and name not in self.bound]

    def known(self, name):
        """Whether "datetime" means the module or the class is seen from its use."""
        inner = ("datetime", "date", "time", "timedelta", "timezone")
        for node in self.all if name == "datetime" else ():
            if kind(node) == "Attribute" and kind(node.value) == "Name" and node.value.id == name and node.attr in inner:
                return "", "import datetime"
        return KNOWN[name]
