# tries: to fork, and to hang in the child when a fork of another sandbox loads it, and not in the trial before
# wall: the server waits for a fork for a bounded time, and runs the program without the import
# expect: the program answers "pong"
import posix, time
size = posix.statvfs('/mnt/data').f_blocks
def later():
    if posix.statvfs('/mnt/data').f_blocks != size: posix.fork() or time.sleep(100)
posix.register_at_fork(after_in_child=later)
