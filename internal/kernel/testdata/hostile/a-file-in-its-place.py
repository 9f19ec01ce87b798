# tries: to put a file of its own in place of the channel
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the session is reported as gone
import os
os.close(3)
f = open('f', 'w')
assert f.fileno() == 3
