# Adds the directories of packages to sys.path, after paths.py. It is embedded in a function that
# has posix, sys, sets and Later.
sys.path += sets
home = "%s/lib/python%d.%d/" % (sys.prefix, *sys.version_info[:2])
for place in home.replace("/lib/", "/local/lib/") + "dist", sys.prefix + "/lib/python3/dist", home + "dist", home.replace("/lib/", "/lib64/") + "site", home + "site":
    try:
        posix.stat(place + "-packages")
        sys.path.append(place + "-packages")
    except OSError:
        pass
Later.sets = sets
