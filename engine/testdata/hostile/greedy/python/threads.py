# tries: to start threads until it is refused, and again
# wall: the limit on tasks, and the timeout
# expect: the run ends as timed_out or failed, and its session serves on
import threading, time
while True:
    try: threading.Thread(target=time.sleep, args=(600,)).start()
    except RuntimeError: pass
