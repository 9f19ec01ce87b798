# Does the part of "site" that every program sees, and adds the directories of packages,
# in an interpreter that was started without "site". It is embedded in a function that has
# posix, sys, sets and text (later.py).
import builtins, _sitebuiltins
builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
builtins.help = _sitebuiltins._Helper()
sys.path += sets
home = "%s/lib/python%d.%d/" % (sys.prefix, *sys.version_info[:2])
for place in home.replace("/lib/", "/local/lib/") + "dist", sys.prefix + "/lib/python3/dist", home + "dist", home.replace("/lib/", "/lib64/") + "site", home + "site":
    try:
        posix.stat(place + "-packages")
        sys.path.append(place + "-packages")
    except OSError:
        pass

class Later:
    def find_spec(self, name, path=None, target=None):
        if name not in own and path is None or name in ("importlib.metadata", "pkgutil"):
            names = dict(globals(), sys=sys, state=state)
            exec(text, names)
            return names["site_at_last"](self, name, path, target)

Later.sets = sets
own = sys.stdlib_module_names
sys.meta_path.insert(0, Later())
