#!/usr/bin/env bash
# Runs the tests that need a container engine, with one that scripts/engine.sh starts for them:
# images are made, imported and run with each of its runtimes, that of a release answers in a
# container, sandboxes are made of them, and the engine is killed beside them. TEST_ALL=1 runs the long
# tests too, and the groups exec, files, sessions and egress of the acceptance kit in containers, where the
# kit lies beside the checkout. Exit 77: there is no engine.
set -euo pipefail
cd "$(dirname "$0")/.."

short=-short
if [ "${TEST_ALL-}" = 1 ]; then short=-short=false; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The first makes the image that the others run. Tests with gVisor have to run where it could be built.
scripts/engine.sh bash -c '
	set -e
	if [[ ",${SANDBOXMCP_MUST_RUN-}," = *,docker,* && ",$ENGINE_RUNTIMES," = *,runsc,* ]]; then SANDBOXMCP_MUST_RUN+=,runsc; fi
	go test -count=1 -timeout 8m -run "Docker|Engine|TestScript/image$" ./internal/image ./internal/cli
	go test -count=1 -timeout 8m -run "TestScript/docker.*" ./internal/cli
	go test -C tools -count=1 -timeout 8m -run Engine ./release
	go test -count=1 -timeout 25m "$1" ./backend/docker
	if [ "$1" = -short=false ] && [ -x ../shared/acceptance/run ]; then
		go build -o "$2/sandboxmcp" ./cmd/sandboxmcp
		../shared/acceptance/run --bin "$2/sandboxmcp" --group exec,files,sessions,egress --must-run egress --except .ci/acceptance.except \
			--setting SANDBOXMCP_BACKEND=docker --setting "DOCKER_HOST=$DOCKER_HOST"
	fi
' engine-test "$short" "$work"
