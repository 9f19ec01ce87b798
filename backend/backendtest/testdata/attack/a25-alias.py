# id: A25
# tries: to run a program under another name, so that a rule on names would not see it
# expect direct: EACCES|ENOENT
# expect loader: refused
# expect copied: refused
# expect proc-root: refused
# expect memfd: refused
# expect[ns,held] memfd: refused
from attempt import *
import glob, shutil, subprocess

script = "import sys\ntry:\n open(sys.argv[1]).read(); print('read')\nexcept OSError: print('refused')\n"
canary = canaries()[0]
exe = os.path.realpath(sys.executable)
attempt("direct", reads(canary))


def run(argv, **kw):
    def f():
        try:
            return subprocess.run(argv + ["-I", "-S", "-c", script, canary], capture_output=True, text=True, timeout=10, **kw).stdout.strip() or "refused"
        except OSError:
            return "refused"
    return f


loader = (glob.glob("/lib64/ld-linux*") + glob.glob("/lib/ld-linux*") + ["/nonexistent"])[0]
attempt("loader", run([loader, exe]))
own = os.environ["WORK"] + "/own"
try:
    shutil.copyfile(exe, own)
    os.chmod(own, 0o755)
except OSError as e:
    print("copied", e, file=sys.stderr)
attempt("copied", run([own]))
attempt("proc-root", run(["/proc/self/root" + exe]))


def memfd():
    try:
        fd = os.memfd_create("x", 0)
    except OSError:
        return "refused"
    with open(exe, "rb") as f:
        os.write(fd, f.read(1 << 23))
    return run(["/proc/self/fd/%d" % fd], pass_fds=[fd])()


attempt("memfd", memfd)
