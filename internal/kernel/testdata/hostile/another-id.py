# tries: to report the end of other cells
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the cell ends as usual, and the next one is answered
import os, struct
def say(s): os.write(3, struct.pack('>I', len(s)) + s.encode())
say('{"type":"done","id":7,"ok":false}'); say('{"type":"done","id":0}')
