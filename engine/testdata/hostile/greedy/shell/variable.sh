# tries: to double a variable without end
# wall: the limit on memory
# expect: the run ends as out_of_memory or signalled or failed, and its session serves on
x=x; while :; do x=$x$x; done
