# Adds the directories of packages to sys.path, after paths.py. It is embedded in a function that
# has posix, sys, sets, Later and places. It lists the directories that it looked for in "seen".
seen = []
sys.path += sets
for place in places:
    there = posix.access(place, 0)
    seen.append((place, there))
    if there:
        sys.path.append(place)
Later.sets = sets
