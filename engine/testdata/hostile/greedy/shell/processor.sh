# tries: to compute without end
# wall: the timeout
# expect: the run ends as timed_out, and its session serves on
while :; do :; done
