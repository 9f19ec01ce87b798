# tries: to fork until it is refused, and again
# wall: the limit on tasks, and the timeout
# expect: the run ends as timed_out, and its session serves on
import os
while True:
    try: os.fork()
    except OSError: pass
