# id: A23
# tries: to gain rights by set-user-id programs, the system's and its own
# expect id: unchanged
# expect su: refused
# expect own: unchanged
# expect setuid: refused
# expect chown: refused
me=$(id -u)
[ "$me" != 0 ] && echo "id: unchanged" || echo "id: root"
if su -c id root </dev/null >/dev/null 2>&1; then echo "su: ok"; else echo "su: refused"; fi
cp /usr/bin/id "$WORK/own" && chmod 6755 "$WORK/own"
[ "$("$WORK/own" -u)" = "$me" ] && echo "own: unchanged" || echo "own: gained"
if perl -e '$> = 0; $< = 0; exit($> == 0 ? 0 : 1)' 2>/dev/null; then echo "setuid: ok"; else echo "setuid: refused"; fi
if chown 0:0 "$WORK/own" 2>/dev/null; then echo "chown: ok"; else echo "chown: refused"; fi
