# tries: to connect outward, and once more when a file tells it that the network is open
# wall: the sandbox has no network interface and no route until the server opens its network
# expect: ENETUNREACH first; then the address, from the listener of the test
import errno, os, socket, time
print('waited', 'WAITED' in os.environ, os.getpid(), flush=True)
for again in range(2):
    try:
        s = socket.create_connection(("1.2.3.4", 80), 10)
        print(s.recv(100).decode(), flush=True)
    except OSError as e: print(errno.errorcode[e.errno], flush=True)
    while not again and not os.path.exists("/mnt/data/go"): time.sleep(.005)
