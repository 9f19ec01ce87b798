# tries: to write garbage to the channel
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the session is reported as gone
import os
os.write(3, b'\xff' * 3000000)
