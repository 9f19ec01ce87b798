# id: A30
# tries: to get code into an interpreter that starts later: sitecustomize, startup files, hooks of the shell and of Node
# expect sitecustomize: refused
# expect startup: refused
# expect shell: refused
# expect preload: ran inside
from attempt import *
import subprocess

w = os.environ["WORK"]
canary = canaries()[0]
body = "try:\n open(%r).read(); print('read')\nexcept OSError: print('refused')\n" % canary
open(w + "/sitecustomize.py", "w").write(body)
open(w + "/start.py", "w").write(body)
open(w + "/start.sh", "w").write("cat '%s' 2>/dev/null && echo read || echo refused\n" % canary)


def run(argv, stdin=None, **env):
    def f():
        r = subprocess.run(argv, env={"PATH": "/usr/bin:/bin", **env}, capture_output=True, text=True, timeout=10, cwd=w, input=stdin)
        return r.stdout.strip() or r.stderr.strip()[-80:]
    return f


attempt("sitecustomize", run([sys.executable, "-c", "0"], PYTHONPATH=w))
attempt("startup", run([sys.executable, "-i", "-c", "exec(open(%r).read())" % (w + "/start.py")], stdin=""))
attempt("shell", run(["/bin/sh", "-c", ". ./start.sh"], ENV=w + "/start.sh"))
attempt("preload", lambda: "ran inside" if subprocess.run(["/bin/true"], env={"LD_PRELOAD": w + "/none.so"}, capture_output=True).returncode == 0 else "failed")
