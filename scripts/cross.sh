#!/usr/bin/env bash
# Checks that the product builds on every platform. This machine's is compiled, with what the tests
# reuse. For the others sources are only type-checked, and TEST_ALL=1 compiles them, too. Only Linux
# has walls; elsewhere the command line and the library have to build all the same. The other
# modules are for the machine that builds.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

scripts/modules.sh go build -o /dev/null ./...
host=$(go env GOHOSTOS)/$(go env GOHOSTARCH)
others=()
for target in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do
	[ "$target" = "$host" ] || others+=("$target")
done
started=$SECONDS
if [ "${TEST_ALL-}" = 1 ]; then
	for target in "${others[@]}"; do
		GOOS=${target%/*} GOARCH=${target#*/} go build -o /dev/null ./...
	done
	echo "builds for ${others[*]} ($((SECONDS - started)) s)"
else
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	go build -C tools -o "$work/platforms" ./platforms
	"$work/platforms" . "${others[@]}"
	echo "type-checked for ${others[*]} ($((SECONDS - started)) s)"
fi
