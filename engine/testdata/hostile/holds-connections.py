# tries: to leave more connections unaccepted than a sandbox may have, of the IP version that the environment names
# wall: the bound on TCP connections of a sandbox
# expect: the run ends as out_of_memory, and names TCP connections
import os, socket, time
family = getattr(socket, os.environ["FAMILY"])
held = []
for _ in range(160):
    l = socket.socket(family); l.bind((os.environ["ADDRESS"], 0)); l.listen(1000); held.append(l)
    for _ in range(100):
        s = socket.socket(family); s.connect(l.getsockname()); s.send(b"x"); s.close()
time.sleep(30)
