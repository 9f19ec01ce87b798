#!/bin/sh
# Prints the version to build in: that of the tag, else 0.0.0-dev and the commit.
cd "$(dirname "$0")/.." || exit 1
tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null) && [ -z "$(git status --porcelain 2>/dev/null)" ] && {
	echo "${tag#v}"
	exit 0
}
commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || commit=unknown
echo "0.0.0-dev+$commit"
