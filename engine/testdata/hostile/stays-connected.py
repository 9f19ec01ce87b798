# tries: to stay connected after its run, and to tell the next run in files when it hears something and when it is cut off
# wall: the egress link ends connections that the next run may not have
# expect: "cut" appears once the connection is no longer allowed
import os, subprocess, sys, time
for f in ('got', 'cut'):
    if os.path.exists(f): os.remove(f)
code = '''
import socket
s = socket.create_connection(("api.site.test", 80), 10)
s.sendall(b"GET / HTTP/1.1\\r\\nHost: api.site.test\\r\\n\\r\\n")
try:
    while True:
        b = s.recv(4096)
        if not b: break
        if b"drip" in b: open("got", "w").close()
except OSError: pass
open("cut", "w").close()
'''
subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
def there(name, patience):
    end = time.time() + patience
    while not os.path.exists(name) and time.time() < end: time.sleep(0.02)
    return os.path.exists(name)
