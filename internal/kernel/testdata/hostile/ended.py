# tries: to end its interpreter without a report
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the session is reported as gone
import os
os._exit(0)
