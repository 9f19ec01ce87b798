# tries: to write without end from many processes
# wall: the limits on output and on tasks
# expect: the run ends as output_limit, and its session serves on
import os
for _ in range(8): os.fork()
while True: os.write(1, b'x' * 65536)
