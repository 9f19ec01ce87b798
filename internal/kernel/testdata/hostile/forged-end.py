# tries: to report its own end, with an exit code that does not exist
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the cell ends with exit code 64, and the next one is answered
import os, struct
def say(s): os.write(3, struct.pack('>I', len(s)) + s.encode())
say('{"type":"done","id":1,"ok":false,"exit":1000000}')
