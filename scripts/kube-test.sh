#!/usr/bin/env bash
# Starts a Kubernetes cluster on this machine (backend/kube/e2e), runs the tests of backend/kube in it,
# and takes it down. The first run builds Kubernetes, which takes minutes.
# With -short as its first argument, it runs the tests that every change has to pass, for four minutes.
# With -kills and a time, such as 5m, it runs only one test for that time: it kills servers that share the cluster, a
# PostgreSQL database and an S3 server. The other arguments go to go test.
# Exit status 77: there can be no cluster here.
set -euo pipefail
cd "$(dirname "$0")/.."

cluster=$PWD/backend/kube/e2e/cluster.sh
export KUBE_DIR=/tmp/sandboxmcp-kube.$$ KUBE_NET=${KUBE_NET:-10.246.0}

left() { # prints what a cluster can leave on the machine
	grep -F "$KUBE_DIR" /proc/self/mounts || true
	ip -o link | grep -F "smk${KUBE_NET//./}" || true
	find /sys/fs/cgroup -maxdepth 3 -type d -name "sandboxmcp-kube-${KUBE_NET//./-}*" || true
	grep -lF "$KUBE_DIR/" /proc/[0-9]*/cmdline 2>/dev/null || true
	[ ! -e "$KUBE_DIR" ] || echo "$KUBE_DIR"
}

parameters() { sysctl vm.overcommit_memory kernel.panic_on_oops kernel.panic; }
before=$(parameters)

stop() {
	local status=$? rest
	"$cluster" down || status=1
	rest=$(left; [ "$before" = "$(parameters)" ] || parameters)
	if [ -n "$rest" ]; then
		printf 'kube: left behind:\n%s\n' "$rest" >&2
		status=1
	fi
	exit $status
}

[ "$(id -u)" = 0 ] || { echo "only root can start a cluster's nodes" >&2; exit 77; }
trap stop EXIT
trap 'exit 143' TERM INT HUP
"$cluster" up
# shellcheck disable=SC1090
. <("$cluster" env)
SANDBOXMCP_MUST_RUN=${SANDBOXMCP_MUST_RUN:+$SANDBOXMCP_MUST_RUN,}kube,kube-policy,kube-node-kill,agent-sandbox
export SANDBOXMCP_MUST_RUN

kills() { # kills TIME ARGUMENT…: kills servers that share everything, one after the other
	local long=$1 s3
	shift
	s3=$(scripts/versitygw.sh) || return
	go build -C backend/kube -o "$KUBE_DIR/sandboxmcp-kube" ./cmd/sandboxmcp-kube || return
	SANDBOXMCP_TEST_KILLS=$long SANDBOXMCP_TEST_S3=$s3 SANDBOXMCP_TEST_PROGRAM=$KUBE_DIR/sandboxmcp-kube \
		SANDBOXMCP_BACKEND=kube SANDBOXMCP_ISOLATION_MIN=L1 SANDBOXMCP_KUBE_CONFIG=$KUBECONFIG SANDBOXMCP_KUBE_NAMESPACE=$KUBE_NAMESPACE \
		SANDBOXMCP_KUBE_IMAGE=$KUBE_IMAGE SANDBOXMCP_KUBE_CONNECT=pod \
		scripts/postgres-test.sh -- go test -timeout 20m -count=1 "$@" -run '^TestReplicasWithSessionsAreKilled$' ./internal/cli
}

if [ "${1-}" = -kills ]; then
	kills "${@:2}"
	exit
fi
if [ "${1-}" = -short ]; then
	tests='TestPodRunsPrograms|TestEgress|TestAReplacedPodIsLost|TestNodeLoss|TestSilentPartition|TestExpiryWithoutServers'
	go test -C backend/kube -timeout 5m "$@" -run "^($tests)\$" .
	go test -C backend/kube -timeout 5m "$@" -run '^TestConformance$/^Laws$/^(Start|Wait|Kill|Files)' .
	kills 25s "$@" || [ $? = 77 ] # there is no PostgreSQL, or no S3 server
else
	go test -C backend/kube -timeout 20m "$@" ./...
fi
go test -C backend/kube/deploy -count=1 -timeout 5m .
