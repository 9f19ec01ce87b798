#!/usr/bin/env bash
# Puts the peers with which this product is compared into .tools. The benchmark
# names as absent what is not there.
#
#   s1      the Python program sandboxmcp 1.1.0, in a virtual environment
#   docker  the programs of the system's docker packages, unpacked, and the image
#           of a small system with Python; the benchmark starts an engine of its own
#
# go-judge is not installed by this: its program is looked for as .tools/bin/go-judge.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

fail() { # fail NAME REASON: what went wrong last, and the reason
	tail -n 5 "$log" >&2
	echo "peers: $1: $2" >&2
	return 1
}

# Its server does not start with the current MCP library, so that is held below
# version 2. It runs code with the interpreter it is installed for: the system's
# own, so that an unprivileged user can start it too, unless that is too old.
s1() {
	local package=mcpaisuite-sandboxmcp==1.1.0 library=mcp==1.30.0 venv=.tools/s1 python='' candidate
	[ ! -e "$venv/ready" ] || return 0
	for candidate in /usr/bin/python3 "$(command -v python3 || true)"; do
		if [ -x "$candidate" ] && "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
			python=$candidate
			break
		fi
	done
	[ -n "$python" ] || { fail 'sandboxmcp (Python)' 'it needs Python 3.11 with venv; on Debian and Ubuntu: sudo apt-get install -y python3-venv'; return 1; }
	echo "installing sandboxmcp (Python) into $venv"
	rm -rf "$venv"
	if "$python" -m venv "$venv" >"$log" 2>&1 && "$venv/bin/pip" install --quiet --disable-pip-version-check "$package" "$library" >>"$log" 2>&1; then
		touch "$venv/ready"
		return 0
	fi
	rm -rf "$venv"
	fail 'sandboxmcp (Python)' 'it could not be installed'
}

# Nothing is installed on the machine: no service, no group, no bridge.
docker() {
	local dir=.tools/docker package codename
	[ ! -e "$dir/ready" ] || return 0
	[ "$(id -u)" = 0 ] || { fail docker 'its engine needs root'; return 1; }
	command -v apt-get mmdebstrap >/dev/null || { fail docker 'its packages need apt-get, its image mmdebstrap; on Debian and Ubuntu: sudo apt-get install -y mmdebstrap'; return 1; }
	echo "unpacking docker into $dir and making its image (half a minute)"
	rm -rf "$dir"
	mkdir -p "$dir/packages"
	apt-cache show docker.io >/dev/null 2>&1 || apt-get update >"$log" 2>&1 || true
	for package in docker.io docker-cli containerd runc libdevmapper1.02.1; do
		# What one release has in a package of its own, another has in docker.io.
		(cd "$dir/packages" && apt-get download "$package" >>"$log" 2>&1) || true
	done
	for package in "$dir"/packages/*.deb; do
		dpkg -x "$package" "$dir" >>"$log" 2>&1 || true
	done
	rm -rf "$dir/packages"
	[ -x "$dir/usr/sbin/dockerd" ] || { fail docker 'its packages could not be had'; return 1; }
	codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mmdebstrap --variant=essential --include=python3 "$codename" "$dir/root.tar" >>"$log" 2>&1 || { fail docker 'its image could not be made'; return 1; }
	touch "$dir/ready"
}

mkdir -p .tools
failed=0
s1 || failed=1
docker || failed=1
exit $failed
