#!/usr/bin/env bash
# Builds an S3 server, versitygw, from its Go module into .tools/versitygw/VERSION, unless it is there, and
# prints its path. Exit 77: it cannot be built here. The first build takes a minute.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v1.8.0

dir=$PWD/.tools/versitygw/$version
if [ ! -x "$dir/versitygw" ]; then
	echo "building versitygw $version into $dir" >&2
	stage=$(mktemp -d)
	trap 'rm -rf "$stage"' EXIT
	if ! CGO_ENABLED=0 GOFLAGS='' GOBIN=$stage go install -trimpath -ldflags '-s -w' "github.com/versity/versitygw/cmd/versitygw@$version" >"$stage/log" 2>&1; then
		tail -n 5 "$stage/log" >&2
		echo "versitygw: it could not be built" >&2
		exit 77
	fi
	mkdir -p "$dir"
	mv "$stage/versitygw" "$dir/versitygw.$$"
	mv "$dir/versitygw.$$" "$dir/versitygw"
fi
echo "$dir/versitygw"
