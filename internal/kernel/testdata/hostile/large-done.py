# tries: to send a report of its end that is larger than its limit
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the session is reported as gone
import os, struct
def say(s): os.write(3, struct.pack('>I', len(s)) + s.encode())
say('{"type":"done","id":1,"x":"%s"}' % ('x' * 300))
