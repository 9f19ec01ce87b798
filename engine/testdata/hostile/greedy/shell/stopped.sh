# tries: to stop itself, so that it handles no signal
# wall: the timeout, which ends with SIGKILL
# expect: the run ends as timed_out, and its session serves on
kill -STOP $$
