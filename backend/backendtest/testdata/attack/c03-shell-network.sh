# id: C03
# tries: the shell's ways to the network
# needs: bash
# expect dev-tcp: refused
# expect dev-udp: refused
# expect[told] dev-udp: ok
# expect env: refused
# expect loader: refused
# expect curl: refused
t() { timeout 4 "$@" >/dev/null 2>&1; }
say() { if [ "$2" = 0 ]; then echo "$1: ok"; else echo "$1: refused"; fi; }
t bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'
say dev-tcp $?
t bash -c 'exec 3<>/dev/udp/192.0.2.1/53 && echo x >&3'
say dev-udp $?
t env -i bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'
say env $?
l=$(ls /lib64/ld-linux* /lib/ld-linux* 2>/dev/null | head -1)
t "$l" "$(command -v bash)" -c 'exec 3<>/dev/tcp/192.0.2.1/80'
say loader $?
t \curl -sf http://192.0.2.1/
say curl $?
