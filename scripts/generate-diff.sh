#!/usr/bin/env bash
# Generates again what is generated and fails if a file of the tree changes or
# a new one appears: in a clean clone, exactly when something was not committed.
set -euo pipefail
cd "$(dirname "$0")/.."

kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT

files() { git ls-files -z --cached --others --exclude-standard | sort -zu; }
state() { files | while IFS= read -r -d '' f; do if [ -f "$f" ]; then sha256sum "$f"; fi; done; }

state >"$kept/before"
make --no-print-directory generate
state >"$kept/after"
if ! diff "$kept/before" "$kept/after" >"$kept/diff"; then
	echo "generated files are not what the sources give; run 'make generate' and commit:" >&2
	sed -n 's/^[<>] [0-9a-f]*  /  /p' "$kept/diff" | sort -u >&2
	git --no-pager diff --stat >&2
	exit 1
fi
