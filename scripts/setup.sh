#!/usr/bin/env bash
# Puts in place what a target needs. Go is taken for granted.
#
#   scripts/setup.sh [--need] WORD…
#
#   run    python3, node and bash, the interpreters that the sandboxes start
#   science  pip, for the packages of the demo's chart and of scripts/science.sh
#   kit    Python 3.11 for the acceptance kit, and curl for the commands of the documents
#   browser  Chromium and a font, for the tests of browser_fetch
#   pdf    pdftotext, for the tests of PDF in fetch_webpage
#   user   useradd and setpriv, for the tests as a second user
#   init   the C compilers that rebuild the small init for both architectures
#   bench  bubblewrap, a peer of the benchmark, what scripts/peers.sh needs (mmdebstrap, socat and ripgrep), and
#          pip, for the package set that it measures
#   clients  npm and venv, for scripts/clients.sh
#   engine  mmdebstrap, for the images of scripts/engine-test.sh
#   postgres  the PostgreSQL server of scripts/postgres-test.sh, without a database of its own
#   kube   what scripts/kube-test.sh builds and starts a cluster with
#   release  dpkg-deb, and mmdebstrap for the root file systems of the images
#   evidence  apparmor_parser and qemu-user, which check what a release contains
#   lint   golangci-lint, built into .tools/bin
#
# As root, Debian's packages are installed. As another user, what to install is
# printed; that is a failure only with --need. lint is always needed.
set -euo pipefail
cd "$(dirname "$0")/.."

golangci_version=v2.15.0
# Where a second user finds programs: nothing of root's home is in it.
clean_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

need=0
missing=()

want() { # want TEST-COMMAND PACKAGE…: the packages, if the command says no
	local test=$1
	shift
	if ! PATH=$clean_path bash -c "$test" >/dev/null 2>&1; then missing+=("$@"); fi
}

golangci() {
	local bin=.tools/bin/golangci-lint
	if [ -x "$bin" ] && "$bin" version 2>/dev/null | grep -q "version ${golangci_version#v} "; then return; fi
	echo "building golangci-lint $golangci_version into .tools/bin (a minute)"
	GOFLAGS='' GOBIN="$PWD/.tools/bin" go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$golangci_version"
}

command -v go >/dev/null || { echo "setup: Go 1.26 or newer is needed and is not on the PATH" >&2; exit 1; }

for word in "$@"; do
	case $word in
	--need) need=1 ;;
	run)
		want 'command -v python3' python3
		want 'command -v node' nodejs
		want 'command -v bash' bash
		;;
	science) want 'python3 -m pip --version' python3-pip ;;
	kit)
		want 'python3 -c "import sys; sys.exit(sys.version_info < (3, 11))"' python3
		want 'command -v curl' curl # the documents' commands use it
		;;
	browser) want 'command -v chromium || command -v google-chrome' chromium fonts-liberation ;;
	pdf) want 'command -v pdftotext' poppler-utils ;;
	user)
		want 'command -v useradd' passwd
		want 'command -v setpriv' util-linux
		;;
	init)
		want 'command -v x86_64-linux-gnu-gcc' "$([ "$(uname -m)" = x86_64 ] && echo gcc || echo gcc-x86-64-linux-gnu)"
		want 'command -v aarch64-linux-gnu-gcc' "$([ "$(uname -m)" = aarch64 ] && echo gcc || echo gcc-aarch64-linux-gnu)"
		;;
	bench)
		want 'command -v bwrap' bubblewrap
		want 'command -v socat' socat
		want 'command -v rg' ripgrep
		want '/usr/bin/python3 -c "import venv, ensurepip"' python3-venv
		want 'python3 -m pip --version' python3-pip
		if [ "$(id -u)" = 0 ]; then want 'command -v mmdebstrap' mmdebstrap; fi
		;;
	clients)
		want 'command -v npm' npm
		want '/usr/bin/python3 -c "import venv, ensurepip"' python3-venv
		;;
	engine) want 'command -v mmdebstrap' mmdebstrap ;;
	postgres) want 'ls /usr/lib/postgresql/*/bin/initdb || command -v initdb' postgresql ;;
	kube)
		want 'pkg-config --exists libseccomp' pkg-config libseccomp-dev
		want 'command -v gcc' gcc libc6-dev
		want 'command -v iptables' iptables
		want 'command -v ipset' ipset
		want 'command -v ip' iproute2
		want 'command -v openssl' openssl
		want 'command -v curl' curl
		want 'command -v mmdebstrap' mmdebstrap
		;;
	release)
		want 'command -v dpkg-deb' dpkg
		want 'command -v mmdebstrap' mmdebstrap
		;;
	evidence)
		want 'command -v apparmor_parser' apparmor
		[ "$(uname -m)" = aarch64 ] || want 'command -v qemu-aarch64 || command -v qemu-aarch64-static' qemu-user
		;;
	lint) golangci ;;
	*)
		echo "setup: no such word: $word" >&2
		exit 2
		;;
	esac
done

[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	if [[ " ${missing[*]} " = *" postgresql "* ]] && [ ! -e /etc/postgresql-common/createcluster.conf ]; then
		# The package would make a database and start its server.
		mkdir -p /etc/postgresql-common
		echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
	fi
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	if apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1 ||
		{ apt-get update >"$log" 2>&1 && apt-get install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; }; then
		exit 0
	fi
	tail -n 5 "$log" >&2
fi
echo "missing here: ${missing[*]}. On Debian and Ubuntu: sudo apt-get install -y ${missing[*]}" >&2
exit $need
