# id: A27
# tries: to mount file systems
# expect tmpfs: refused
# expect overlay: refused
# expect proc: refused
# expect bind: refused
# expect fuse: refused
mkdir -p "$WORK/m" "$WORK/u" "$WORK/w"
try() {
	n=$1
	shift
	if "$@" >/dev/null 2>&1; then echo "$n: ok"; else echo "$n: refused"; fi
}
try tmpfs mount -t tmpfs none "$WORK/m"
try overlay mount -t overlay -o "lowerdir=/usr,upperdir=$WORK/u,workdir=$WORK/w" none "$WORK/m"
try proc mount -t proc proc "$WORK/m"
try bind mount --bind /usr "$WORK/m"
try fuse fusermount "$WORK/m"
