# tries: to kill its interpreter
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the session is reported as gone
import os
os.kill(os.getpid(), 9)
