#!/bin/sh
# Runs a command in each module of this tree, or prints where they are: the product at the
# root, and the benchmark, the tools and the backend of Kubernetes, whose packages
# are no part of ./... there.
#
#   scripts/modules.sh [COMMAND…]    0 if each of them ended with 0
cd "$(dirname "$0")/.." || exit 1
status=0
for dir in . bench tools backend/kube backend/kube/deploy; do
	if [ $# = 0 ]; then
		echo "$dir"
	else
		(cd "$dir" && "$@") || status=1
	fi
done
exit $status
