# tries: to hold more record locks than a sandbox may have, until it is ended
# wall: the bound on file locks of a sandbox
# expect: the run ends as out_of_memory, and names file locks
import fcntl, os, struct, time
f = [os.open("l%d" % i, os.O_RDWR | os.O_CREAT) for i in range(100)]
for n in range(60000): fcntl.fcntl(f[n % 100], fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, n // 100 * 2, 1, 0))
time.sleep(30)
