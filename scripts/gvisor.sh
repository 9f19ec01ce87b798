#!/usr/bin/env bash
# Builds gVisor's runsc from its Go module into .tools/gvisor/VERSION, unless it is there, and
# prints its path. Exit 77: it cannot be built here. The first build takes minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

version=v0.0.0-20260905035102-160fafc42237 # of the branch go, which has the generated sources

dir=$PWD/.tools/gvisor/$version
if [ -x "$dir/runsc" ]; then
	echo "$dir/runsc"
	exit 0
fi
case $(uname -sm) in
'Linux x86_64' | 'Linux aarch64') ;;
*) echo "gvisor: it has no platform for $(uname -sm)" >&2; exit 77 ;;
esac
echo "building runsc $version into $dir (some minutes)" >&2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
if ! CGO_ENABLED=0 GOFLAGS='' GOBIN=$stage go install -trimpath -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$version" "gvisor.dev/gvisor/runsc@$version" >"$stage/log" 2>&1; then
	tail -n 5 "$stage/log" >&2
	echo "gvisor: runsc could not be built" >&2
	exit 77
fi
mkdir -p "$dir"
mv "$stage/runsc" "$dir/runsc.$$"
mv "$dir/runsc.$$" "$dir/runsc"
echo "$dir/runsc"
