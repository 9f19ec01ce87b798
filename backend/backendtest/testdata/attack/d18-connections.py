# id: D18
# tries: to hold connections whose one end waits to be accepted and whose other end is closed; it stops at 40 000
# kind: a Go test runs it
import os, socket, time

each = 128
listeners, made = [], 0
while made < 40000 and len(listeners) < 400:
    l = socket.socket()
    l.bind(("127.0.%d.%d" % (len(listeners) // 200, len(listeners) % 200 + 1), 0))
    l.listen(65535)
    listeners.append(l)
    for _ in range(min(each, 40000 - made)):
        c = socket.socket()
        c.settimeout(0.5)
        try:
            c.connect(l.getsockname())
            made += 1
        except OSError:
            break
        finally:
            c.close()
with open("/proc/net/sockstat") as f:
    print(made, f.read().split("TCP: inuse ")[1].split()[0], flush=True)
time.sleep(2)
