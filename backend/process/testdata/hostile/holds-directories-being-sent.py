# tries: to hold many directories of the host that were read in part, in calls that wait to send them, and not open
# wall: the watch over kernel objects counts what such calls may keep as open directories
# expect: killed
import os, socket, threading, time

pairs = []
for n in range(20):
    pairs.append(socket.socketpair())
    try:
        while True: pairs[-1][0].send(b"x" * 4096, socket.MSG_DONTWAIT)
    except BlockingIOError: pass
    held = [os.open("/usr/bin", os.O_RDONLY) for _ in range(250)]
    threading.Thread(target=socket.send_fds, args=(pairs[-1][0], [b"x"], held), daemon=True).start()
    time.sleep(0.05)
    for f in held: os.close(f)
print("holds", flush=True)
time.sleep(float(os.environ["SECONDS"]))
print("lived", flush=True)
os._exit(0)
