# tries: to write to its standard error without end
# wall: the limit on output
# expect: the run ends as output_limit, and its session serves on
import os
while True: os.write(2, b'x' * 65536)
