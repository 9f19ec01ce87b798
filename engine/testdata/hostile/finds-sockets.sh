# tries: to find a socket among its descriptors, over which others could be sent
# wall: every stream to the server is a pipe
# expect: it prints "took []"
took=
for fd in 0 1 2 3 4 5 6 7 8 9 10 11 12 13; do [ -S /proc/$$/fd/$fd ] && took="$took $fd"; done
echo "took [$took]"
