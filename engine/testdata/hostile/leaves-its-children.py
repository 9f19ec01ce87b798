# tries: to come to have children in another process group, which the kernel visits for each other when the process ends, with the host stopped
# wall: init lets no process with children change its group, where a sandbox may have more than 512 tasks
# expect: the change is refused in such a sandbox, and made in a smaller one: it prints refused or changed
import os
r, w = os.pipe()
middle = os.fork()  # the first process of a session cannot change its group
if middle == 0:
    if os.fork() == 0:
        os.close(w)
        os.read(r, 1)
        os._exit(0)
    try:
        os.setpgid(0, 0)
        os._exit(0)
    except PermissionError:
        os._exit(1)
print("refused" if os.waitpid(middle, 0)[1] else "changed", flush=True)
os.close(w)
