# id: A02
# tries: to write into the system's directories
# expect etc: refused
# expect usr: refused
# expect lib: refused
# expect root: refused
# expect dev: refused
# expect program: refused
# expect run: refused
# expect work: ok
# expect tmp: ok
try() {
	if (echo x >"$2/sandboxmcp-attack-a02") 2>/dev/null; then
		rm -f "$2/sandboxmcp-attack-a02"
		echo "$1: ok"
	else
		echo "$1: refused"
	fi
}
try etc /etc
try usr /usr/bin
try lib /usr/lib
try root ""
try dev /dev
try program "$PROGRAM"
try run /run
try work "$WORK"
try tmp "$TMPDIR"
