#!/usr/bin/env bash
# Compiles every package of every module for every platform. Only Linux has walls; elsewhere the
# command line and the library have to build all the same.
set -euo pipefail
cd "$(dirname "$0")/.."
for target in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do
	started=$SECONDS
	CGO_ENABLED=0 GOOS=${target%/*} GOARCH=${target#*/} scripts/modules.sh go build -trimpath -o /dev/null ./...
	echo "builds for $target ($((SECONDS - started)) s)"
done
