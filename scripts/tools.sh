#!/usr/bin/env bash
# Builds the programs that the last steps of the check need, unless they are there: gVisor, an S3 server, and
# those of a Kubernetes cluster. If one cannot be built here, the step that needs it says so.
set -uo pipefail
cd "$(dirname "$0")/.."

builds=(scripts/versitygw.sh)
if [ "$(id -u)" = 0 ]; then builds=(scripts/gvisor.sh "${builds[@]}" backend/kube/e2e/build.sh); fi
for build in "${builds[@]}"; do
	"$build" || [ $? = 77 ] || exit 1
done
