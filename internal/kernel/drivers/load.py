# The beginning of a fork server's text. The rest of the text is comments: see assemble.
def load():
    """Returns the code of this file's comments. A child process compiles them. If that fails, this process does."""
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
        failed = 1
        try:
            posix.close(ours)  # otherwise a child whose parent has ended would wait in write
            code = marshal.dumps(compiled())
            while code:
                code = code[posix.write(theirs, code):]
            failed = 0
        finally:
            posix._exit(failed)
    posix.close(theirs)
    code = b""
    while part := posix.read(ours, 1 << 16):
        code += part
    posix.close(ours)
    if posix.waitpid(pid, 0)[1]:
        return compiled()
    return marshal.loads(code)
