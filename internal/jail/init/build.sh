#!/bin/sh
# Builds init.c, snapshot.c and relay.c for both architectures. `build.sh --check` builds into a temporary directory and fails unless the result
# equals the *.bin files of the repository. The compiler has to have the version below.
set -eu
cd "$(dirname "$0")"
want="12.2.0"
flags="-O2 -nostdlib -static -ffreestanding -fno-builtin -fno-stack-protector -fno-asynchronous-unwind-tables -fno-ident -fcf-protection=none
 -fno-pic -no-pie -Wall -Wextra -Werror -Wl,--build-id=none -Wl,-z,noseparate-code -Wl,-z,noexecstack -s"
blob="-O2 -nostdlib -static -ffreestanding -fno-builtin -fno-stack-protector -fno-asynchronous-unwind-tables -fno-ident -fcf-protection=none
 -fpic -fvisibility=hidden -fno-jump-tables -fno-tree-loop-distribute-patterns -Wall -Wextra -Werror -Wl,--build-id=none -Wl,-T,snapshot.ld"
out=. relay=../../relay/program
if [ "${1:-}" = --check ]; then
	out=$(mktemp -d) && relay=$out
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
	# shellcheck disable=SC2086
	"$cc" $flags $extra -o "$relay/relay_$arch.bin" ../../relay/program/relay.c
	# shellcheck disable=SC2086
	"$cc" $blob $extra -o "$out/snapshot_$arch.elf" snapshot.c
	"${cc%gcc}objcopy" -O binary -j .text "$out/snapshot_$arch.elf" "$out/snapshot_$arch.bin"
	rm "$out/snapshot_$arch.elf"
done
if [ "$out" != . ]; then
	for arch in amd64 arm64; do
		for name in init snapshot; do
			cmp "$out/${name}_$arch.bin" "${name}_$arch.bin" || { echo "build.sh: ${name}_$arch.bin is not what $name.c gives" >&2; exit 1; }
		done
		cmp "$out/relay_$arch.bin" "../../relay/program/relay_$arch.bin" || { echo "build.sh: relay_$arch.bin is not what relay.c gives" >&2; exit 1; }
	done
	echo "the bytes of init.c, snapshot.c and relay.c are what the sources give"
fi
