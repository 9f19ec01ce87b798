# Checks a Python program and runs nothing of it. To start fast, this file imports only modules
# that are built in. The rule of pynames precedes this text; what calls found() follows it.
import sys
from _frozen_importlib_external import PathFinder

QUOTES = {ord(c): '"' for c in "\u201c\u201d\u201e\u201f\u2033"}
QUOTES.update({ord(c): "'" for c in "\u2018\u2019\u201a\u201b\u2032"})
SPACES = {ord(c): " " for c in "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"}
SPACES.update({ord(c): None for c in "\u200b\u200c\u200d\u2060\ufeff"})

# What a call of these does: the rule, and what is said of it.
CALLS = {
    "os.system": ("os.system", "os.system() runs a shell command"),
    "posix.system": ("os.system", "posix.system() runs a shell command"),
    "os.popen": ("os.system", "os.popen() runs a shell command"),
    "eval": ("eval", "eval() runs text as code"),
    "exec": ("exec", "exec() runs text as code"),
    "compile": ("compile", "compile() makes code of text"),
    "__import__": ("__import__", "__import__() imports what the program names while it runs"),
    "subprocess.getoutput": ("subprocess with shell=True", "subprocess.getoutput() runs a shell command"),
    "subprocess.getstatusoutput": ("subprocess with shell=True", "subprocess.getstatusoutput() runs a shell command"),
    "shutil.rmtree": ("shutil.rmtree", "shutil.rmtree() removes a whole tree"),
    "os.remove": ("os.remove/unlink", "os.remove() removes a file"),
    "os.unlink": ("os.remove/unlink", "os.unlink() removes a file"),
    "socket.socket": ("raw socket creation", "socket.socket() opens a connection that no library guards"),
    "pickle.load": ("pickle", "pickle.load() runs what the data says"),
    "pickle.loads": ("pickle", "pickle.loads() runs what the data says"),
    "_pickle.load": ("pickle", "pickle.load() runs what the data says"),
    "_pickle.loads": ("pickle", "pickle.loads() runs what the data says"),
}
SHELLS = {"subprocess." + name for name in ("call", "run", "Popen", "check_call", "check_output")}
BUILTINS = {"eval", "exec", "compile", "__import__", "getattr", "open", "vars", "globals", "chr", "__builtins__"}


class Program(Names):
    """What is known of the names of a program, and of what is dangerous in it."""

    def path(self, node, depth=0):
        """The dotted path of what an expression is, as "os.system"; None if it is not known."""
        name = kind(node)
        if depth > 20:
            return None
        if name == "Name":
            if node.id in self.imported:
                return self.imported[node.id]
            if node.id in self.values:
                return self.path(self.values[node.id], depth + 1)
            return node.id if node.id in BUILTINS and node.id not in self.bound else None
        if name == "Attribute":
            return self.member(self.path(node.value, depth + 1), node.attr)
        if name == "Subscript":
            return self.member(self.table(node.value, depth + 1), self.text(node.slice))
        if name == "Call" and node.args:
            called = self.path(node.func, depth + 1)
            if called == "getattr" and len(node.args) > 1:
                return self.member(self.path(node.args[0], depth + 1), self.text(node.args[1]))
            if called in ("__import__", "importlib.import_module"):
                return self.text(node.args[0])
        return None

    def member(self, of, name):
        if not of or not name:
            return None
        return name if of in ("builtins", "__builtins__") else of + "." + name

    def table(self, node, depth):
        """The path of what a dictionary of names belongs to."""
        if kind(node) == "Attribute" and node.attr == "__dict__":
            return self.path(node.value, depth)
        if kind(node) == "Call":
            called = self.path(node.func, depth)
            if called == "vars" and node.args:
                return self.path(node.args[0], depth)
            if called == "globals":
                return "builtins"
        return "builtins" if self.path(node, depth) == "__builtins__" else None

    def text(self, node, depth=0):
        """The string that an expression is; None if it is not known before the program runs."""
        name = kind(node)
        if depth > 200:
            return None
        if name == "Constant":
            return node.value if isinstance(node.value, str) else None
        if name == "Name" and node.id in self.values:
            return self.text(self.values[node.id], depth + 20)
        if name == "BinOp" and kind(node.op) == "Add":
            return self.joined([node.left, node.right], depth)
        if name == "JoinedStr":
            return self.joined([v.value if kind(v) == "FormattedValue" else v for v in node.values], depth)
        if name == "Call" and node.args:
            if kind(node.func) == "Name" and node.func.id == "chr" and kind(node.args[0]) == "Constant":
                try:
                    return chr(node.args[0].value)
                except (TypeError, ValueError, OverflowError):
                    return None
            if kind(node.func) == "Attribute" and node.func.attr == "join" and self.text(node.func.value, depth + 1) == "" and kind(node.args[0]) in ("List", "Tuple"):
                return self.joined(node.args[0].elts, depth)
        return None

    def joined(self, parts, depth):
        texts = [self.text(p, depth + 1) for p in parts]
        return None if None in texts else "".join(texts)

    def dangers(self):
        """Yields a node, a rule and a message for each dangerous pattern."""
        for node in self.all:
            name = kind(node)
            if name == "Call":
                yield from self.call(node)
            elif name in ("Import", "ImportFrom"):
                names = [node.module or ""] if name == "ImportFrom" else [a.name for a in node.names]
                if any(n.split(".")[0] in ("ctypes", "_ctypes", "cffi") for n in names):
                    yield node, "ctypes", "ctypes calls native code"
            elif name == "BinOp" and kind(node.op) == "Add":
                if all(kind(side) == "Call" and kind(side.func) == "Name" and side.func.id == "chr" for side in (node.left, node.right)):
                    yield node, "chr() concatenation", "a string is put together from characters, which hides what it says"

    def call(self, node):
        called = self.path(node.func)
        if called in CALLS:
            yield (node,) + CALLS[called]
        elif called in SHELLS:
            if any(k.arg == "shell" and kind(k.value) == "Constant" and k.value.value for k in node.keywords):
                yield node, "subprocess with shell=True", called + "() with shell=True runs a shell command"
        elif called in ("open", "io.open", "pathlib.Path"):
            where = self.text(node.args[0]) if node.args else None
            if where and where.startswith(("/etc/passwd", "/etc/shadow")):
                yield node, "reading system files", "this reads " + where
        elif called == "getattr" and len(node.args) > 1:
            of, what = self.path(node.args[0]), self.text(node.args[1])
            if self.member(of, what) in CALLS:
                yield (node,) + CALLS[self.member(of, what)]
            elif of and what is None:
                yield node, "getattr", "getattr() takes from " + of + " what the program names while it runs"


def statements_for(program):
    """The import statements that the program lacks, in the order of their use. Packages have to be installed."""
    need = [said for _, package, said in program.missing() if not package or PathFinder.find_spec(package)]
    return list(dict.fromkeys(need))


def with_imports(text, tree, statements):
    """Inserts import statements after the docstring and the imports of __future__."""
    first, last = None, 0
    for n, node in enumerate(tree.body):
        doc = n == 0 and kind(node) == "Expr" and kind(node.value) == "Constant" and isinstance(node.value.value, str)
        if not doc and not (kind(node) == "ImportFrom" and node.module == "__future__"):
            first = node
            break
        last = node.end_lineno
    lines = text.split("\n")
    line = min([first.lineno] + [d.lineno for d in getattr(first, "decorator_list", [])])
    if line > last:
        lines[line - 1:line - 1] = statements
        return "\n".join(lines)
    here = lines[line - 1].encode()
    lines[line - 1] = (here[:first.col_offset] + "; ".join(statements).encode() + b"; " + here[first.col_offset:]).decode()
    return "\n".join(lines)


def unfenced(text):
    inside, kept, seen = False, [], False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            inside, seen = not inside, True
        elif inside:
            kept.append(line)
    return "\n".join(kept) + "\n" if seen and kept else text


def spaced(width):
    def change(text):
        lines = text.split("\n")
        for n, line in enumerate(lines):
            rest = line.lstrip(" \t")
            lines[n] = line[:len(line) - len(rest)].replace("\t", " " * width) + rest
        return "\n".join(lines)
    return change


def dedented(text):
    lines = text.split("\n")
    depth = [len(l) - len(l.lstrip(" \t")) for l in lines if l.strip()]
    return "\n".join(l[min(depth):] if l.strip() else l for l in lines) if depth and min(depth) else text


REPAIRS = [
    ("took the program out of its markdown fence", unfenced),
    ("replaced typographic quotes", lambda text: text.translate(QUOTES)),
    ("replaced unusual spaces", lambda text: text.translate(SPACES)),
    ("removed the indentation of the whole program", dedented),
    ("replaced tabs by 4 spaces", spaced(4)),
    ("replaced tabs by 8 spaces", spaced(8)),
]


def parsed(text):
    """The syntax tree of a program that can be compiled."""
    tree = compile(text, "<code>", "exec", 0x400, True)
    compile(tree, "<code>", "exec", 0x2000, True)  # with await outside of functions, as in a session
    return tree


def judged(code):
    """The syntax trees of a program, the first of which is that of its text. A file may declare another encoding, which a
    cell ignores, so that the same bytes are two programs."""
    trees = [parsed(code.decode("utf-8"))]
    if b"coding" in code:
        trees.append(parsed(code))
    return trees


def repaired(text):
    """The program, its tree and what was repaired; None if that did not help."""
    done = []
    for said, change in REPAIRS:
        before = text
        changed = change(before)
        if changed == before:
            continue
        try:
            return changed, parsed(changed), done + [said]
        except (SyntaxError, ValueError):
            if not said.startswith("replaced tabs"):
                text, done = changed, done + [said]
    return None


def plain(text):
    """The program with a statement in place of each line for IPython, and these lines."""
    lines, found = text.split("\n"), []
    for n, line in enumerate(lines):
        bare = line.lstrip(" \t")
        if bare[:1] in ("%", "!"):
            lines[n] = line[:len(line) - len(bare)] + "pass"
            found.append(n + 1)
    return "\n".join(lines), found


def column(text, line, offset):
    lines = text.split("\n")
    return len(lines[line - 1].encode()[:offset].decode("utf-8", "ignore")) + 1 if 0 < line <= len(lines) else 0


def check(code, fix):
    """Checks the bytes of a program. Returns its issues, what was corrected, and the corrected text or None."""
    issues, fixes, trees = [], [], None
    fixed = code.decode("utf-8", "replace")
    text = (fixed[1:] if fixed[:1] == "\ufeff" else fixed).replace("\r\n", "\n").replace("\r", "\n")
    try:
        trees = judged(code[3:] if code[:3] == b"\xef\xbb\xbf" else code)
    except (SyntaxError, ValueError) as error:
        bare, magic = plain(text)
        better = repaired(text) if fix else None
        if better:
            fixed, tree, fixes = better
            text, trees = fixed, [tree]
        elif magic:
            try:
                trees = judged(bare.encode("utf-8", "replace"))
                issues = [(n, 1, "info", "magic", "a line for IPython works in sessions only") for n in magic[:100]]
            except (SyntaxError, ValueError):
                pass
        if trees is None:
            line, col = getattr(error, "lineno", None) or 0, getattr(error, "offset", None) or 0
            if "\0" in text and not line:
                at = text.find("\0")
                line, col = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
            name = kind(error) if isinstance(error, SyntaxError) else "SyntaxError"
            message = getattr(error, "msg", None) or str(error)
            return [(max(line, 0), max(col, 0), "error", "syntax", name + ": " + message)], [], None
    seen = set()
    for tree in trees:
        program = Program(tree)
        for node, rule, message in program.dangers():
            if (node.lineno, rule) not in seen and len(seen) < 200:
                seen.add((node.lineno, rule))
                issues.append((node.lineno, column(text, node.lineno, node.col_offset), "warning", rule, message[:300]))
        if fix and tree is trees[0]:
            statements = statements_for(program)
            if statements:
                fixed = with_imports(text, tree, statements)
                fixes = fixes + ["added " + s for s in statements]
    return issues, fixes, fixed if fixes else None


def encode(value):
    """JSON of lists, strings, numbers and None."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(encode, value)) + "]"
    return "null" if value is None else str(value)


def quote(text):
    """JSON of a string. The module that writes any string is loaded only for those that need it."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return '"' + text + '"'
    try:
        from _json import encode_basestring_ascii
    except ImportError:
        from json import dumps as encode_basestring_ascii
    return encode_basestring_ascii(text)


def found(code, fix):
    """What check() finds. A program that is too deep for this interpreter has that issue."""
    try:
        return check(code, fix)
    except (RecursionError, MemoryError):
        return [(0, 0, "error", "too-deep", "the code nests too deeply to be checked")], [], None
