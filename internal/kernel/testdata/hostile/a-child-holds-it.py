# tries: to end its interpreter while a child holds the channel open
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the session is reported as gone
import os, time
if os.fork() == 0:
    time.sleep(20)
os._exit(1)
