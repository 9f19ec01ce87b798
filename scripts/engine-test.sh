#!/usr/bin/env bash
# Runs the tests that need a container engine, with one that scripts/engine.sh starts for them:
# images are made, imported and run with each of its runtimes, that of a release answers in a
# container, sandboxes are made of them, and the engine is killed beside them. SHORT= runs the long tests too. Exit 77: there is no engine.
set -euo pipefail
cd "$(dirname "$0")/.."

# The first makes the image that the others run. Tests with gVisor have to run where it could be built.
exec scripts/engine.sh bash -c '
	if [[ ",${SANDBOXMCP_MUST_RUN-}," = *,docker,* && ",$ENGINE_RUNTIMES," = *,runsc,* ]]; then SANDBOXMCP_MUST_RUN+=,runsc; fi
	go test -count=1 -timeout 8m -run "Docker|Engine|TestScript/image" ./internal/image ./internal/cli &&
		(cd tools && go test -count=1 -timeout 8m -run Engine ./release) &&
		go test -count=1 -timeout 20m "$1" ./backend/docker
' engine-test "${SHORT--short}"
