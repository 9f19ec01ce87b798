#!/usr/bin/env bash
# Builds the programs of a Kubernetes cluster from Go modules, and prints the directory that has them. A
# directory that is there already is not built again: its name is a hash of this file and the modules' files.
#
#   backend/kube/e2e/build.sh
#
# SANDBOXMCP_KUBE_CACHE  where the directories are (default: sandboxmcp/kube in the user's cache)
# Exit status 77: a library is missing.
set -euo pipefail
cd "$(dirname "$0")"

cache=${SANDBOXMCP_KUBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sandboxmcp/kube}
hash=$(find build.sh control node -type f | LC_ALL=C sort | xargs sha256sum | cat - <(go env GOARCH GOVERSION) | sha256sum | cut -c1-16)
out=$cache/$hash
if [ -e "$out/ready" ]; then
	echo "$out"
	exit
fi
pkg-config --exists libseccomp 2>/dev/null || { echo "there is no libseccomp; Debian's packages are libseccomp-dev and pkg-config" >&2; exit 77; }

mkdir -p "$cache"
work=$(mktemp -d "$cache/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 143' TERM INT HUP
# The flags are those of the product's builds, and in control/go.mod are the versions of backend/kube/go.mod for
# what both use, so that Go's cache has a third of it.
export GOFLAGS="-buildvcs=false -mod=readonly" CGO_ENABLED=0

build() { # build MODULE TARGET ARGUMENT…
	local started=$SECONDS module=$1 target=$2
	shift 2
	mkdir -p "$(dirname "$work/$target.")"
	nice -n 5 go build -C "$module" -ldflags "-s -w ${ldflags-}" -o "$work/$target" "$@"
	echo "built $target in $((SECONDS - started)) s" >&2
}

version=$(go list -C control -m -f '{{.Version}}' k8s.io/kubernetes)
ldflags="-X k8s.io/component-base/version.gitVersion=$version" build control kube ./kube
build control support ./support
build control agent-sandbox-controller sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller
mkdir "$work/crds" "$work/cni"
cp "$(go list -C control -m -f '{{.Dir}}' sigs.k8s.io/agent-sandbox)"/k8s/crds/*.yaml "$work/crds/"
containerd=github.com/containerd/containerd/v2/cmd
build node ./ -tags no_btrfs,no_zfs,no_devmapper $containerd/containerd $containerd/containerd-shim-runc-v2 $containerd/ctr
plugins=github.com/containernetworking/plugins/plugins
build node cni/ $plugins/main/bridge $plugins/main/loopback $plugins/ipam/host-local $plugins/meta/firewall
CGO_ENABLED=1 build node runc -tags seccomp github.com/opencontainers/runc
for name in etcd kubectl kubelet kube-apiserver kube-controller-manager kube-router kube-scheduler; do ln -s kube "$work/$name"; done
chmod -R u+w "$work"
touch "$work/ready"
# Another build of the same may have ended first.
mv -T "$work" "$out" 2>/dev/null || [ -e "$out/ready" ]
echo "$out"
