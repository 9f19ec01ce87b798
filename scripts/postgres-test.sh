#!/usr/bin/env bash
# Starts a PostgreSQL server on a socket in a directory of its own, runs the tests of the
# rooms that use a store on it, of two engines that share it, and of object stores, and stops it.
# Arguments go to go test. If the first argument is "--", the others are a command that is run instead of the tests.
# Exit status 77: there is no PostgreSQL.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1) || true
[ -n "$bin" ] || bin=$(dirname "$(command -v initdb || echo /)")
[ -x "$bin/initdb" ] || { echo "there is no PostgreSQL; Debian's package is postgresql" >&2; exit 77; }

dir=$(mktemp -d /tmp/smpg.XXXXXX)
as=()
if [ "$(id -u)" = 0 ]; then # the server refuses to run as root
	chown 65534:65534 "$dir"
	as=(setpriv --reuid 65534 --regid 65534 --clear-groups --)
fi
stop() {
	[ ! -e "$dir/data/postmaster.pid" ] || "${as[@]}" "$bin/pg_ctl" -D "$dir/data" -m immediate -w stop >/dev/null || true
	rm -rf "$dir"
}
trap stop EXIT
trap 'exit 143' TERM INT HUP

(cd "$dir" && "${as[@]}" "$bin/initdb" -D "$dir/data" -U sandboxmcp -A trust -N --encoding=UTF8 --locale=C.UTF-8 >"$dir/log")
(cd "$dir" && "${as[@]}" "$bin/pg_ctl" -D "$dir/data" -l "$dir/server.log" -w -t 60 \
	-o "-k '$dir' -c listen_addresses='' -c max_connections=500 -c shared_buffers=32MB -c fsync=off" start >/dev/null) || { cat "$dir/server.log" >&2; exit 1; }

export SANDBOXMCP_TEST_POSTGRES="postgres:///postgres?host=$dir&user=sandboxmcp"
if [ "${1-}" = -- ]; then
	"${@:2}"
	exit
fi
go test -timeout 10m "$@" ./internal/store/... ./internal/audit ./internal/limits ./internal/gate ./internal/session ./internal/artifact ./internal/vault ./internal/installed
go test -timeout 5m "$@" -run TestReplicas ./engine
go test -timeout 20m "$@" -run 'TestReplicas|TestDocumentsRun/operations' ./internal/cli
# Where an S3 server can be built, its tests have to run.
if SANDBOXMCP_TEST_S3=$(scripts/versitygw.sh); then
	export SANDBOXMCP_TEST_S3 SANDBOXMCP_MUST_RUN=${SANDBOXMCP_MUST_RUN:+$SANDBOXMCP_MUST_RUN,}s3
	go test -C backend/kube -timeout 5m "$@" ./objects
fi
