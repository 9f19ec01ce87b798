# id: A28
# tries: to link or rename out of the writable directories, and devices of the program's directory into them
# expect out: EXDEV|EACCES|EROFS|EPERM
# expect rename: EXDEV|EACCES|EROFS|EPERM
# expect program: EXDEV|EACCES|EROFS|EPERM
# expect exchange: EXDEV|EACCES|EROFS|EPERM
# expect system: EXDEV|EACCES|EPERM
# expect inside: ok
from attempt import *

w = os.environ["WORK"]
open(w + "/f", "w").write("x")
attempt("out", lambda: os.link(w + "/f", "/usr/bin/sandboxmcp-attack-a28"))
attempt("rename", lambda: os.rename(w + "/f", "/sandboxmcp-attack-a28"))
attempt("program", lambda: os.rename(w + "/f", os.environ["PROGRAM"] + "/attempt.py"))
attempt("exchange", lambda: os.rename(os.environ["PROGRAM"] + "/attempt.py", w + "/g"))
attempt("system", lambda: os.link("/usr/bin/env", w + "/env"))


def inside():
    os.makedirs(w + "/d", exist_ok=True)
    os.rename(w + "/f", w + "/d/f")
    os.link(w + "/d/f", w + "/f2")


attempt("inside", inside)
