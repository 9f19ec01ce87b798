# tries: to leave a thread, which a snapshot cannot hold
# wall: the import runs in a sandbox of its own, and its snapshot is checked and tried there before a program gets it
# expect: the import fails with "there are threads", and programs run without it
import _thread, time
_thread.start_new_thread(time.sleep, (100,))
