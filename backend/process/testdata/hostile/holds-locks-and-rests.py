# tries: to keep locks that it takes within a few milliseconds, between two counts, by using no CPU time afterwards
# wall: the watch over kernel objects counts a sandbox that has used any CPU time again after a second
# expect: killed
import fcntl, os, time

time.sleep(2)  # until its start is counted
held = [open(str(n), "w") for n in range(48)]
for at in range(100):
    for f in held: fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 * at)
print("holds", flush=True)
time.sleep(float(os.environ["SECONDS"]))
print("lived")
