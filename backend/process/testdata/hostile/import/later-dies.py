# tries: to kill itself when a fork of another sandbox loads it, and not in the trial before
# wall: the server waits for a fork for a bounded time, and runs the program without the import
# expect: the program answers "pong"
import posix, time
size = posix.statvfs('/mnt/data').f_blocks
def later():
    if posix.statvfs('/mnt/data').f_blocks != size: posix.kill(posix.getpid(), 9)
posix.register_at_fork(after_in_child=later)
