#!/usr/bin/env bash
# Installs the Python program sandboxmcp 1.1.0, with which this product is
# compared, into .tools/s1. The benchmark names it as absent when this fails.
#
# Its server does not start with the current MCP library, so that is held below
# version 2. It runs code with the interpreter it is installed for: the system's
# own, so that an unprivileged user can start it too, unless that is too old.
set -euo pipefail
cd "$(dirname "$0")/.."

package=mcpaisuite-sandboxmcp==1.1.0
library=mcp==1.30.0
venv=.tools/s1

[ ! -e "$venv/ready" ] || exit 0
python=''
for candidate in /usr/bin/python3 "$(command -v python3 || true)"; do
	if [ -x "$candidate" ] && "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
		python=$candidate
		break
	fi
done
[ -n "$python" ] || { echo "peers: sandboxmcp (Python) needs Python 3.11 with venv; on Debian and Ubuntu: sudo apt-get install -y python3-venv" >&2; exit 1; }

echo "installing sandboxmcp (Python) into $venv"
rm -rf "$venv"
mkdir -p .tools
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if "$python" -m venv "$venv" >"$log" 2>&1 && "$venv/bin/pip" install --quiet --disable-pip-version-check "$package" "$library" >>"$log" 2>&1; then
	touch "$venv/ready"
	exit 0
fi
tail -n 5 "$log" >&2
rm -rf "$venv"
echo "peers: sandboxmcp (Python) could not be installed" >&2
exit 1
