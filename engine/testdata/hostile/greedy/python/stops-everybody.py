# tries: to stop every process that it can signal, and itself
# wall: the PID namespace, and the timeout
# expect: the run ends as timed_out, and its session serves on
import os, signal, subprocess
c = [subprocess.Popen(['sleep', '600']) for _ in range(5)]
os.kill(-1, signal.SIGSTOP)
os.kill(os.getpid(), signal.SIGSTOP)
