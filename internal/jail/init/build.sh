#!/bin/sh
# Builds the tiny init for both architectures. `build.sh --check` builds into a temporary directory and compares with the bytes that
# are in the repository: they have to be what this source gives with the compiler named below.
set -eu
cd "$(dirname "$0")"
want="12.2.0"
flags="-O2 -nostdlib -static -ffreestanding -fno-builtin -fno-stack-protector -fno-asynchronous-unwind-tables -fno-ident -fcf-protection=none
 -fno-pic -no-pie -Wall -Wextra -Werror -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s"
out=.
if [ "${1:-}" = --check ]; then
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
fi
for arch in amd64 arm64; do
	case $arch in
	amd64) cc=x86_64-linux-gnu-gcc extra=-mno-red-zone ;;
	arm64) cc=aarch64-linux-gnu-gcc extra=-mno-outline-atomics ;;
	esac
	command -v "$cc" >/dev/null || { echo "build.sh: $cc is not installed (apt-get install gcc gcc-aarch64-linux-gnu)" >&2; exit 3; }
	have=$("$cc" -dumpfullversion)
	[ "$have" = "$want" ] || { echo "build.sh: $cc is $have; the bytes are made with $want" >&2; exit 3; }
	# shellcheck disable=SC2086
	"$cc" $flags $extra -o "$out/init_$arch.bin" init.c
done
if [ "$out" != . ]; then
	for arch in amd64 arm64; do
		cmp "$out/init_$arch.bin" "init_$arch.bin" || { echo "build.sh: init_$arch.bin is not what init.c gives" >&2; exit 1; }
	done
	echo "init_amd64.bin and init_arm64.bin are what init.c gives"
fi
