#!/usr/bin/env bash
# Everything that CI asks for. Every step runs, whatever came of the one before;
# the last line sums them up.
set -uo pipefail
cd "$(dirname "$0")/.."

# A skip would hide a fault on a machine that is known to have these.
if [ "$(id -u)" = 0 ]; then
	export SANDBOXMCP_MUST_RUN=${SANDBOXMCP_MUST_RUN-root,user,userns,cgroup,python,node,bash,initbytes}
fi
must=${SANDBOXMCP_MUST_RUN-}

TEST_SUMS=$(mktemp -d)
export TEST_SUMS
tools=$(mktemp -d)
trap 'rm -rf "$TEST_SUMS" "$tools"' EXIT
go build -C tools -o "$tools/" ./testsum ./tree || exit 1
n=0

step() { # step NAME COMMAND…: 0 is good, 77 is "cannot be tried here"
	local name=$1 started=$SECONDS status verdict
	shift
	n=$((n + 1))
	echo "== $name"
	"$@"
	status=$?
	case $status in 0) verdict=pass ;; 77) verdict=skip ;; *) verdict=fail ;; esac
	"$tools/testsum" note "$name" "$TEST_SUMS/0-$(printf %02d $n)" "$verdict" "exit $status in $((SECONDS - started)) s"
}

format() {
	local out
	out=$(scripts/modules.sh "$PWD/.tools/bin/golangci-lint" fmt --diff ./... 2>&1) && [ -z "$out" ] && return
	echo "$out"
	return 1
}

init_bytes() {
	[ -x internal/jail/init/build.sh ] || { echo "there is no internal/jail/init/build.sh" >&2; return 1; }
	internal/jail/init/build.sh --check
	local status=$?
	# 3: the compilers are not there, or other ones than the bytes were made with.
	if [ $status = 3 ] && [[ ",$must," != *,initbytes,* ]]; then return 77; fi
	return $status
}

started=$SECONDS
step "set-up" scripts/setup.sh run kit science user init clients lint
step "MCP clients" scripts/clients.sh
# Without a way to the registries their tests are skipped; installed, they run.
if [ -n "$must" ] && [ -e .tools/clients/ready ]; then SANDBOXMCP_MUST_RUN+=,clients; fi
step "package set" scripts/science.sh
if [ -n "$must" ] && [ -e .tools/science/ready ]; then SANDBOXMCP_MUST_RUN+=,science; fi
step "go.mod" scripts/modules.sh go mod tidy -diff
step "no large files" "$tools/tree" blobs .
step "recent benchmark" "$tools/tree" benchmarks .
step "format" format
step "lint" scripts/modules.sh "$PWD/.tools/bin/golangci-lint" run ./...
step "generated files" scripts/generate-diff.sh
step "bytes of the small init" init_bytes
step "builds everywhere" scripts/cross.sh
scripts/test.sh || echo "test.sh ended with $?" >>"$TEST_SUMS/.broken"
[ ! -e "$TEST_SUMS/.broken" ] || "$tools/testsum" note "tests" "$TEST_SUMS/9-broken" fail "$(cat "$TEST_SUMS/.broken")"
echo
echo "took $((SECONDS - started)) s"
"$tools/testsum" total "$TEST_SUMS"/*
