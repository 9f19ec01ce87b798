# id: A04
# tries: to find a descriptor that was left open, and to climb from it
# expect open: none
# expect directories: none
# expect stdin: ok
import os, stat

found, dirs = [], []
for fd in range(3, 4096):
    try:
        st = os.fstat(fd)
    except OSError:
        continue
    found.append("%d %o" % (fd, st.st_mode))
for fd in range(0, 4096):
    try:
        d = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        dirs.append(fd)
        os.close(d)
    except (OSError, OverflowError):
        pass
print("open:", " ".join(found) or "none")
print("directories:", dirs or "none")
print("stdin:", "ok" if stat.S_ISCHR(os.fstat(0).st_mode) or stat.S_ISFIFO(os.fstat(0).st_mode) else "odd")
