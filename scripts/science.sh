#!/usr/bin/env bash
# Installs the package set science into .tools/science, a state directory, for
# the cases of the acceptance kit that import pandas and matplotlib. A set that
# is there already is checked and nothing is fetched. Exit 77: pip is missing or
# the package index cannot be reached.
#
#   .tools/science/state   the state directory; copy it, do not use it in place
#   .tools/science/ready   exists once the set is installed
set -euo pipefail
cd "$(dirname "$0")/.."

dir=.tools/science
mkdir -p "$dir"
rm -f "$dir/ready"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

CGO_ENABLED=0 go build -o "$work/sandboxmcp" ./cmd/sandboxmcp
# No setting of yours reaches it.
while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep -iE '^SANDBOX(MCP)?_' || true)
if ! SANDBOXMCP_STATE_DIR=$PWD/$dir/state "$work/sandboxmcp" setup science >"$work/log" 2>&1; then
	tail -n 3 "$work/log" >&2
	echo "science: the package set could not be installed" >&2
	exit 77
fi
touch "$dir/ready"
