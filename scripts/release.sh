#!/usr/bin/env bash
# Builds a release into dist/VERSION: see tools/release.
#
#   scripts/release.sh    of the commit that is checked out
#
# VERSION            instead of the tag's
# SOURCE_DATE_EPOCH  instead of the commit's time
# SIGNING_KEY        a file with an Ed25519 key in PEM, which signs SHA256SUMS
# BASE=no            images without interpreters, also where mmdebstrap is there
#
# The root file systems of the images are Debian's. They are the one part of a release that
# depends on more than the sources: on the packages that Debian has at the time.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${VERSION:-$(scripts/version.sh)}
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
out=dist/$version
suite=trixie
# Interpreters, and the commands that shell code expects.
packages=base-files,bash,ca-certificates,coreutils,dash,findutils,grep,gzip,libc6,libpython3-stdlib,libstdc++6,mawk,nodejs,python3-minimal,sed,tar

[ ! -e "$out" ] || { echo "release: $out is there already; remove it first" >&2; exit 1; }
[ -z "$(git status --porcelain)" ] || echo "release: the checkout has changes that are not committed" >&2
mkdir -p dist

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bases=()
if [ "${BASE-}" != no ] && command -v mmdebstrap >/dev/null; then
	for arch in amd64 arm64; do
		echo "making the root file system of the $arch image"
		# Packages are unpacked and not configured, so that no program of another architecture runs.
		# The certificates are therefore joined here.
		# shellcheck disable=SC2016
		SOURCE_DATE_EPOCH=$epoch mmdebstrap --quiet --variant=extract --architectures="$arch" --include="$packages" \
			--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
			--dpkgopt='path-exclude=/usr/share/locale/*' --skip=output/dev \
			--extract-hook='cat "$1"/usr/share/ca-certificates/mozilla/*.crt >"$1/etc/ssl/certs/ca-certificates.crt"' "$suite" "$work/$arch.tar"
		bases+=(-base "$arch=$work/$arch.tar")
	done
else
	echo "release: the images are without interpreters; with mmdebstrap they have them" >&2
fi
[ -z "${SIGNING_KEY-}" ] || bases+=(-key "$(realpath "$SIGNING_KEY")")
go run -C tools ./release -root "$PWD" -out "$PWD/$out" -version "$version" -epoch "$epoch" "${bases[@]}"
echo "built $out:"
(cd "$out" && sha256sum --quiet -c SHA256SUMS && ls -sh1)
