#!/usr/bin/env bash
# Puts the peers with which this product is compared into .tools. The benchmark
# names as absent what is not there.
#
#   s1      the Python program sandboxmcp 1.1.0, in a virtual environment
#   docker  the programs of the system's docker packages, unpacked, and a small system
#           with Python, as an image and as a directory; the benchmark starts an engine
#   gvisor  runsc, built from its Go module
#   srt     @anthropic-ai/sandbox-runtime from npm, with a Node that is new enough
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

docker() {
	local dir=.tools/docker codename
	[ "$(id -u)" = 0 ] || { fail docker 'its engine needs root'; return 1; }
	command -v mmdebstrap >/dev/null || { fail docker 'its image needs mmdebstrap; on Debian and Ubuntu: sudo apt-get install -y mmdebstrap'; return 1; }
	scripts/engine.sh --install 2>"$log" || { fail docker 'its programs could not be had'; return 1; }
	if [ ! -e "$dir/root.tar" ]; then
		echo "making the image of docker in $dir (half a minute)"
		codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
		mmdebstrap --variant=essential --format=tar --include=python3 --skip=output/dev "$codename" "$dir/root.tar.part" >"$log" 2>&1 || { fail docker 'its image could not be made'; return 1; }
		mv "$dir/root.tar.part" "$dir/root.tar"
	fi
	if [ ! -e "$dir/root" ]; then
		rm -rf "$dir/root.part"
		mkdir "$dir/root.part"
		tar -x -C "$dir/root.part" -f "$dir/root.tar" >"$log" 2>&1 || { fail docker 'its image could not be unpacked'; return 1; }
		mv "$dir/root.part" "$dir/root"
	fi
}

gvisor() {
	[ "$(id -u)" = 0 ] || { fail gvisor 'it is measured as root only'; return 1; }
	scripts/gvisor.sh >"$log" || { fail gvisor 'runsc could not be built'; return 1; }
}

# No script of a package is run. It starts bubblewrap and socat, and asks for ripgrep.
srt() {
	local dir=.tools/srt version=0.0.83 node=22.23.3 arch program
	if [ "$(cat "$dir/ready" 2>/dev/null)" = "$version $node" ]; then return 0; fi
	case $(uname -m) in x86_64) arch=x64 ;; aarch64) arch=arm64 ;; *) fail srt "there is no Node for $(uname -m)"; return 1 ;; esac
	for program in npm bwrap socat rg; do
		command -v $program >/dev/null || { fail srt 'it needs npm, bubblewrap, socat and ripgrep; on Debian and Ubuntu: sudo apt-get install -y npm bubblewrap socat ripgrep'; return 1; }
	done
	echo "installing srt into $dir"
	rm -rf "$dir"
	mkdir -p "$dir"
	if npm install --prefix "$dir" --ignore-scripts --no-audit --no-fund --silent "@anthropic-ai/sandbox-runtime@$version" "node-linux-$arch@$node" >"$log" 2>&1; then
		echo "$version $node" >"$dir/ready"
		return 0
	fi
	rm -rf "$dir"
	fail srt 'it could not be installed'
}

mkdir -p .tools
failed=0
s1 || failed=1
docker || failed=1
gvisor || failed=1
srt || failed=1
exit $failed
