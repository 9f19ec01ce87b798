# tries: to open descriptors until it is refused, and again
# wall: the limit on open files, and the timeout
# expect: the run ends as timed_out, and its session serves on
import os
l = []
while True:
    try: l.append(os.dup(1))
    except OSError: pass
