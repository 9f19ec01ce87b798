#!/bin/sh
# Builds the linter, if it is not there, and runs it in each module.
cd "$(dirname "$0")/.." || exit 1
scripts/setup.sh lint && scripts/modules.sh "$PWD/.tools/bin/golangci-lint" run ./...
