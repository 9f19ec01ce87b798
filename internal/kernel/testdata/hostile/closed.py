# tries: to close the channel on which its interpreter reports
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the session is reported as gone
import os
os.close(3)
