# tries: to forge displays of more than a report may hold
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the cell ends as usual, and the next one is answered
import os, struct
def say(s): os.write(3, struct.pack('>I', len(s)) + s.encode())
for i in range(30): say('{"type":"display","id":1,"data":{"text/html":"%s"}}' % ('x' * 900000))
