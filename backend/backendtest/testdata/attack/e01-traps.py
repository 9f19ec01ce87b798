# id: E01
# tries: to leave in its working directory what would hurt whoever collects it
# kind: a Go test runs it
import os, socket, sys

w = os.environ["WORK"]
os.chdir(w)
canary = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "canary")).read().split("\n")[0]


def quiet(f, *a):
    try:
        f(*a)
    except OSError as e:
        print(f.__name__, a, e, file=sys.stderr)


open("plain", "w").write("plain")
os.mkdir("dir")
open("dir/inner", "w").write("inner")
quiet(os.symlink, canary, "link")
quiet(os.symlink, os.path.dirname(canary), "dirlink")
quiet(os.symlink, "plain", "inside-link")
quiet(os.symlink, "dir", "inside-dirlink")
quiet(os.symlink, "loop", "loop")
quiet(os.symlink, "/proc/self/fd/0", "magic")
quiet(os.symlink, "/proc/1/root" + canary, "procroot")
quiet(os.symlink, "..", "up")
quiet(os.mkfifo, "fifo")
quiet(os.link, "plain", "hard")
quiet(os.link, "/etc/passwd", "passwd")
with open("sparse", "w") as f:
    quiet(f.truncate, 1 << 40)
s = socket.socketpair()[0]
try:
    u = socket.socket(socket.AF_UNIX)
    u.bind("socket")
except OSError:
    pass
for name in (b"new\nline", b"\xff\xfe", b"\x1b[31mred", b" ", b"-rf", b"x" * 255, "e\u0301\u202e.txt".encode(), b"back\\slash"):
    try:
        open(name, "w").write("x")
    except OSError as e:
        print(name, e, file=sys.stderr)
deep = b"."
for _ in range(40):
    deep += b"/d"
    try:
        os.mkdir(deep)
    except OSError:
        break
open("unreadable", "w").write("x")
os.chmod("unreadable", 0)
os.mkdir("closed")
os.chmod("closed", 0)
os.mkdir("many")
for i in range(120):
    open("many/%d" % i, "w").close()
print("done")
