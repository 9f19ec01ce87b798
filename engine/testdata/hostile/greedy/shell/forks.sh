# tries: a fork bomb
# wall: the limit on tasks, and the timeout
# expect: the run ends as timed_out, and its session serves on
f() { f | f; }; f; while :; do :; done
