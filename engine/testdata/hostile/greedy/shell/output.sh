# tries: to print without end
# wall: the limit on output
# expect: the run ends as output_limit, and its session serves on
yes
