#!/usr/bin/env bash
# Runs a command beside a container engine of its own, and leaves nothing behind.
#
#   scripts/engine.sh --install     puts Docker's programs into .tools/docker, and runsc beside them
#   scripts/engine.sh COMMAND…      also starts the engine, and runs the command with
#                                   DOCKER_HOST and, where runsc is there, ENGINE_RUNTIMES=runc,runsc.
#                                   ENGINE_PIDFILE names its process: it is started again when that ends
#
# Nothing is installed on the machine: no service, no group, no bridge. The engine has a
# mount and a network namespace of its own, so that it shares neither bridges nor packet
# filters nor /run with another engine; its containers have --network none. Socket and
# data are in a temporary directory. Exit 77: the engine cannot be had or started here.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
tools=$root/.tools/docker

skip() { # skip REASON
	[ ! -s "${log:-/dev/null}" ] || tail -n 5 "$log" >&2
	echo "engine: $1" >&2
	exit 77
}

install() {
	[ ! -e "$tools/ready" ] || return 0
	{ command -v apt-get && command -v dpkg; } >/dev/null || skip "Docker's programs come from Debian's packages, which need apt-get and dpkg"
	echo "unpacking docker into $tools" >&2
	local stage=$tools.$$ package
	rm -rf "$stage"
	mkdir -p "$stage/packages"
	log=$stage/log
	apt-cache show docker.io >/dev/null 2>&1 || apt-get update >"$log" 2>&1 || true
	for package in docker.io docker-cli containerd runc libdevmapper1.02.1; do
		# What one release has in a package of its own, another has in docker.io.
		(cd "$stage/packages" && apt-get download "$package" >>"$log" 2>&1) || true
	done
	for package in "$stage"/packages/*.deb; do
		dpkg -x "$package" "$stage" >>"$log" 2>&1 || true
	done
	if [ ! -x "$stage/usr/sbin/dockerd" ]; then
		tail -n 5 "$log" >&2
		rm -rf "$stage"
		log='' skip "Docker's packages could not be had"
	fi
	rm -rf "$stage/packages" "$log"
	touch "$stage/ready"
	rm -rf "$tools"
	mv "$stage" "$tools"
	log=''
}

[ "$(id -u)" = 0 ] || skip "an engine needs root"
install
runsc=$("$root/scripts/gvisor.sh") || runsc=''
if [ "${1-}" = --install ]; then exit 0; fi
[ $# -gt 0 ] || { echo "engine: a command is missing" >&2; exit 2; }

# The path of a socket has to be short.
work=$(mktemp -d /tmp/sme.XXXXXX)
group=smengine-$$ # no name of the product: its tests look for groups that it leaves
log=$work/log
engine=''

groups_of() { find /sys/fs/cgroup -maxdepth 3 -type d -name "$group" 2>/dev/null; }
members() { groups_of | while read -r dir; do find "$dir" -name cgroup.procs -exec cat {} + 2>/dev/null; done | sort -u; }

finish() {
	trap '' TERM INT HUP
	if [ -n "$engine" ]; then
		touch "$work/stop"
		kill -TERM "$(cat "$work/pid" 2>/dev/null)" 2>/dev/null || true
		for _ in $(seq 150); do
			kill -0 "$engine" 2>/dev/null || break
			sleep 0.1
		done
		kill -KILL "$engine" 2>/dev/null || true
		wait "$engine" 2>/dev/null || true
	fi
	# Containers and their shims, also where the engine was killed.
	for _ in $(seq 50); do
		[ -n "$(members)" ] || break
		members | xargs -r kill -KILL 2>/dev/null || true
		sleep 0.1
	done
	groups_of | while read -r dir; do find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
	# The mounts of the engine ended with its namespace.
	rm -rf --one-file-system "$work" || { sleep 1; rm -rf --one-file-system "$work"; }
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

cat >"$work/daemon.json" <<JSON
{
  "data-root": "$work/data",
  "exec-root": "$work/exec",
  "pidfile": "$work/pid",
  "cgroup-parent": "/$group",
  "exec-opts": ["native.cgroupdriver=cgroupfs"],
  "bridge": "none",
  "iptables": false,
  "ip6tables": false,
  "ip-forward": false,
  "ip-masq": false,
  "shutdown-timeout": 5,
  "runtimes": {${runsc:+\"runsc\": {\"path\": \"$runsc\", \"runtimeArgs\": [\"--network=none\", \"--platform=systrap\"]\}}}
}
JSON

# The engine and its shims are in a group, by which they can be found whatever becomes of them.
for dir in /sys/fs/cgroup/pids /sys/fs/cgroup/unified /sys/fs/cgroup; do
	[ -e "$dir/cgroup.procs" ] || continue
	own=$dir/$group/engine
	mkdir -p "$own"
	break
done
[ -n "${own-}" ] || skip "there are no control groups"

mkdir -p /run/sandboxmcp
# shellcheck disable=SC2016
unshare --mount --net --propagation private -- bash -c '
	set -e
	echo $$ >"$1/cgroup.procs"
	mkdir "$3/servers"
	mount --bind /run/sandboxmcp "$3/servers" # containers see a directory of their server there
	mount -t tmpfs -o mode=755 tmpfs /run
	mkdir /run/sandboxmcp
	mount --move "$3/servers" /run/sandboxmcp
	ip link set lo up 2>/dev/null || true
	export PATH="$2/usr/sbin:$2/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	export LD_LIBRARY_PATH="$(ls -d "$2"/lib/*-linux-gnu* "$2"/usr/lib/*-linux-gnu* 2>/dev/null | tr "\n" ":")" HOME="$3" TMPDIR="$3"
	# An engine that has ended is started again, in the same namespaces, as a service manager would.
	while dockerd --config-file "$3/daemon.json" --host "unix://$3/s" || true; [ -e "$3/up" ] && [ ! -e "$3/stop" ]; do sleep 0.2; done
' engine "$own" "$tools" "$work" >"$log" 2>&1 </dev/null &
engine=$!

export DOCKER_HOST=unix://$work/s ENGINE_PIDFILE=$work/pid ENGINE_RUNTIMES=runc${runsc:+,runsc} PATH=$tools/usr/bin:$PATH
for n in $(seq 300); do
	if docker version >/dev/null 2>&1; then break; fi
	kill -0 "$engine" 2>/dev/null || skip "the engine ended at its start"
	[ "$n" != 300 ] || skip "the engine does not answer"
	sleep 0.1
done
touch "$work/up"
status=0
"$@" || status=$?
if [ $status != 0 ] && [ -n "${ENGINE_LOG-}" ]; then cp "$log" "$ENGINE_LOG"; fi
exit $status
