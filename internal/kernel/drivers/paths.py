# Does the part of "site" that every program sees, in an interpreter that was started without
# "site", but for the directories of packages (places.py). It is embedded in a function that has
# posix, sys, state and text (later.py).
import builtins, _sitebuiltins
builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
builtins.help = _sitebuiltins._Helper()
home = "%s/lib/python%d.%d/" % (sys.prefix, *sys.version_info[:2])
places = (home.replace("/lib/", "/local/lib/") + "dist-packages", sys.prefix + "/lib/python3/dist-packages", home + "dist-packages",
    home.replace("/lib/", "/lib64/") + "site-packages", home + "site-packages")

class Later:
    def find_spec(self, name, path=None, target=None):
        if name not in own and path is None or name in ("importlib.metadata", "pkgutil"):
            names = dict(globals(), sys=sys, state=state)
            exec(text, names)
            return names["site_at_last"](self, name, path, target)

own = sys.stdlib_module_names
sys.meta_path.insert(0, Later())
