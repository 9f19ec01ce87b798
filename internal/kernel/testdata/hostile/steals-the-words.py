# tries: to read the cells that the server sends to its interpreter
# wall: none: the interpreter is untrusted, and the server checks every report and bounds its size
# expect: the cell ends as usual; nothing is expected of the next one
import os, threading
threading.Thread(target=lambda: os.read(4, 100), daemon=True).start()
