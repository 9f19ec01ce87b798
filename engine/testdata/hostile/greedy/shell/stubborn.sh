# tries: to compute without end, and to ignore signals
# wall: the timeout, which ends with SIGKILL
# expect: the run ends as timed_out, and its session serves on
trap '' INT TERM HUP QUIT; while :; do :; done
