# id: A12
# tries: to find a control group file system and its release_agent
# expect sys: absent
# expect mounts: none
# expect[L1] mounts: unreadable
# expect agent: none
if ls /sys/fs/cgroup >/dev/null 2>&1; then echo "sys: there"; else echo "sys: absent"; fi
if [ -r /proc/self/mounts ] && m=$(cat /proc/self/mounts 2>/dev/null); then
	case $m in *cgroup*) echo "mounts: cgroup" ;; *) echo "mounts: none" ;; esac
else
	echo "mounts: unreadable"
fi
found=$(find /sys /dev /run /mnt /tmp "$WORK" -maxdepth 6 -name 'release_agent' -o -maxdepth 6 -name notify_on_release 2>/dev/null | head -3)
echo "agent: ${found:-none}"
