# The beginning of a fork server's text. The rest of the text are comments: see assemble.
def load():
    """Returns the code that the comments of this file are."""
    import marshal, posix

    def compiled():
        with open(__file__, "rb") as file:
            return compile(b"".join(line[1:] for line in file if line[:1] == b"#"), __file__, "exec", 0, True)

    try:
        ours, theirs = posix.pipe()
    except OSError:
        return compiled()
    try:
        pid = posix.fork()
    except OSError:
        posix.close(ours)
        posix.close(theirs)
        return compiled()
    if pid == 0:
        try:
            code = marshal.dumps(compiled())
            while code:
                code = code[posix.write(theirs, code):]
        finally:
            posix._exit(0)
    posix.close(theirs)
    code = b""
    while part := posix.read(ours, 1 << 16):
        code += part
    posix.close(ours)
    posix.waitpid(pid, 0)
    return marshal.loads(code)
