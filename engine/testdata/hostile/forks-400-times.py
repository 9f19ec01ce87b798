# tries: to have more tasks than it may. It forks 400 times only, so that a missing wall harms nothing
# wall: the limit on tasks of the sandbox
# expect: a fork is refused with EAGAIN (11) at about 32 tasks
import os, time
n = 0
for _ in range(400):
  try:
    pid = os.fork()
  except OSError as e:
    print('refused', e.errno); break
  if pid == 0:
    time.sleep(30); os._exit(0)
  n += 1
print(n)
