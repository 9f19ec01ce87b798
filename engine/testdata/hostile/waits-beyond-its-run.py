# tries: to leave a request waiting for a decision when its run ends, so as to use up a grant that is meant for the next run
# wall: a grant for one run is not given to a request that an earlier run left
# expect: the next run gets the answer
import os, subprocess, sys, time
code = """
import socket
s = socket.create_connection(("127.0.0.1", 312))
s.sendall(b"GET http://api.site.test/ HTTP/1.1\\r\\nHost: api.site.test\\r\\n\\r\\n")
open("sent", "w").close()
s.recv(1000)
"""
subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
while not os.path.exists("sent"): time.sleep(0.02)
time.sleep(1)
