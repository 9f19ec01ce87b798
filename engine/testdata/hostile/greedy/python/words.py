# tries: to flood the server with reports on the channel of its interpreter
# wall: the limit on reports
# expect: the run ends as failed or signalled, and its session serves on
import os, struct
s = b'{"type":"later","id":1,"x":"%s"}' % (b'x' * 1000)
s = struct.pack('>I', len(s)) + s
while True: os.write(3, s)
