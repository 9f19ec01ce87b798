#!/usr/bin/env bash
# Starts a Kubernetes cluster on this machine (backend/kube/e2e), runs the tests of backend/kube in it,
# and takes it down. The first run builds Kubernetes, which takes minutes.
# With -short as its first argument, it runs the tests that every change has to pass, for three minutes.
# The other arguments go to go test.
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
if [ "${1-}" = -short ]; then
	tests='TestPodRunsPrograms|TestEgress|TestAReplacedPodIsLost|TestNodeLoss|TestSilentPartition|TestExpiryWithoutServers'
	go test -C backend/kube -timeout 5m "$@" -run "^($tests)\$" .
	go test -C backend/kube -timeout 5m "$@" -run '^TestConformance$/^Laws$/^(Start|Wait|Kill|Files)' .
else
	go test -C backend/kube -timeout 20m "$@" ./...
fi
go test -C backend/kube/deploy -count=1 -timeout 5m .
