#!/usr/bin/env bash
# Runs every fuzz test for FUZZTIME (30s) each.
set -euo pipefail
cd "$(dirname "$0")/.."
found=0
while IFS=: read -r file line; do
	name=$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' <<<"$line")
	found=1
	echo "== $(dirname "$file") $name"
	go test -run '^$' -fuzz "^$name\$" -fuzztime "${FUZZTIME:-30s}" "./$(dirname "$file")"
done < <(grep -rE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(' backend engine internal ./*_test.go | sort)
[ $found = 1 ] || { echo "there is no fuzz test" >&2; exit 1; }
