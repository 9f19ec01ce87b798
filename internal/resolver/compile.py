# Compiles the modules of a directory. It writes to the file "compiled": the length of the tag of
# cache files as 1 byte, and the tag; then for each module the number of its line on standard
# input and the length of its code as 4 bytes each, big-endian, and the code. The code of a module
# is never run. Modules that cannot be compiled are left out.
import sys
from importlib._bootstrap_external import _code_to_hash_pyc
from importlib.util import source_hash


def compiled(name):
    with open(name, "rb") as file:
        text = file.read()
    code = compile(text, name, "exec", dont_inherit=True)
    return _code_to_hash_pyc(code, source_hash(text), False)


def main():
    import warnings
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(3000)
    with open("compiled", "wb") as out:
        tag = sys.implementation.cache_tag.encode("ascii")
        out.write(bytes([len(tag)]) + tag)
        for number, line in enumerate(sys.stdin):
            try:
                code = compiled(line.rstrip("\n"))
            except Exception:
                continue
            out.write(number.to_bytes(4, "big") + len(code).to_bytes(4, "big") + code)


main()
