# tries: to look up a name that is not open, again and again, also between runs
# wall: the egress policy refuses, and records refusals between runs
# expect: the audit record has them
import subprocess, sys
code = """
import socket, time
while True:
    try: socket.getaddrinfo("between.site.test", 80)
    except OSError: pass
    time.sleep(0.02)
"""
subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
