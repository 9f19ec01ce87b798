#!/usr/bin/env bash
# A Kubernetes cluster on this machine for tests: a control plane and two nodes. A node is a kubelet, a
# containerd and kube-router in namespaces of their own (network, processes, mounts), behind a bridge.
#
#   backend/kube/e2e/cluster.sh up            builds what is missing, starts it, waits for its nodes
#   backend/kube/e2e/cluster.sh down          ends it, and removes what it has made
#   backend/kube/e2e/cluster.sh env           prints the variables of the tests
#   backend/kube/e2e/cluster.sh node-kill N   ends a node and all of its containers, as a loss of power does
#   backend/kube/e2e/cluster.sh node-start N  starts it again
#   backend/kube/e2e/cluster.sh node-cut N    takes its cable out
#   backend/kube/e2e/cluster.sh node-join N   puts it back
#   backend/kube/e2e/cluster.sh import FILE   brings an image (OCI archive) to all nodes
#
# KUBE_DIR     where its files are (default: /tmp/sandboxmcp-kube)
# KUBE_NET     first three numbers of the nodes' addresses (default: 10.245.0); pods are beside them
# KUBE_POLICY  no: network policies are not enforced
# KUBE_ROOTFS  a tar file with the root file system of the image (default: made by `sandboxmcp image build minimal`)
# Exit status 77: it cannot be tried here.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
dir=${KUBE_DIR:-/tmp/sandboxmcp-kube}
net=${KUBE_NET:-10.245.0}
two=${net%.*}
server=$net.1 # the machine, for nodes
bridge=smk${net//./}
cgroups=sandboxmcp-kube-${net//./-}
nodes=2
grace=8 # seconds until a silent node is lost
services=10.96.0.0/16
image=docker.io/sandboxmcp/sandbox:kube
pause=docker.io/sandboxmcp/pause:1

say() { printf 'cluster: %s\n' "$*" >&2; }
k() { "$bin/kubectl" --kubeconfig "$dir/admin.kubeconfig" "$@"; }

poll() { # poll SECONDS WHAT COMMAND…: until the command succeeds
	local until=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $until ] || { say "$what: not in time"; return 1; }
		sleep 0.1
	done
}

launch() { # launch NAME COMMAND…
	local name=$1
	shift
	setsid "$@" >>"$dir/$name.log" 2>&1 </dev/null &
	echo $! >"$dir/$name.pid"
}

# A pid counts as ours while its command line names our directory.
ours() { tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null | grep -qF -- "$dir/"; }

end() { # end NAME
	local file=$dir/$1.pid pid
	[ -e "$file" ] || return 0
	pid=$(cat "$file")
	if ours "$pid"; then
		kill -KILL "$pid" 2>/dev/null || true
		poll 10 "end of $1" test ! -d "/proc/$pid" || true
	fi
	rm -f "$file"
}

end_node() { # end_node N: with its first process, all of its processes and mounts end
	end "node$1"
	poll 10 "the groups of node $1" remove_groups "$1" || true
	ip link del "$bridge-$1" 2>/dev/null || true
}

remove_groups() { # remove_groups N
	local g
	for g in /sys/fs/cgroup/"$cgroups-$1" /sys/fs/cgroup/*/"$cgroups-$1"; do
		[ ! -d "$g" ] || find "$g" -depth -type d -exec rmdir {} + || return 1
	done
}

# A kubelet sets these kernel parameters of the machine, and the tests of the product depend on some of them.
parameters=(vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes net.ipv4.ip_forward)

down() {
	local i
	for i in $(seq $nodes); do end_node "$i"; done
	for i in agent-sandbox kube-scheduler kube-controller-manager kube-apiserver etcd; do end "$i"; done
	ip link del "$bridge" 2>/dev/null || true
	[ ! -s "$dir/parameters" ] || sysctl -q -p "$dir/parameters" || true
	rm -rf --one-file-system "$dir"
}

certificates() {
	mkdir -p "$dir/pki"
	(
		cd "$dir/pki"
		openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN=cluster -keyout ca.key -out ca.crt
		openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out accounts.key
		openssl pkey -in accounts.key -pubout -out accounts.pub
		local name subject names
		while read -r name subject names; do
			openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$subject" -keyout "$name.key" -out "$name.csr"
			openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -out "$name.crt" -extfile <(echo "subjectAltName=$names")
		done <<-END
			server /CN=kube-apiserver IP:127.0.0.1,IP:$server,IP:${services%.*/*}.1,DNS:kubernetes.default.svc
			client /O=system:masters/CN=apiserver DNS:apiserver
		END
	) >"$dir/pki.log" 2>&1
}

account() { # account NAME USER [GROUP]: a kubeconfig with a token
	local token
	token=$(openssl rand -hex 16)
	echo "$token,$2,$2,\"${3-}\"" >>"$dir/tokens.csv"
	cat >"$dir/$1.kubeconfig" <<-END
		apiVersion: v1
		kind: Config
		clusters: [{name: test, cluster: {server: "https://$server:6443", certificate-authority: "$dir/pki/ca.crt"}}]
		users: [{name: $1, user: {token: "$token"}}]
		contexts: [{name: test, context: {cluster: test, user: $1}}]
		current-context: test
	END
}

control_plane() {
	local etcd=http://$server:2379 peer=http://$server:2380 c
	account admin admin system:masters
	account scheduler system:kube-scheduler
	account controllers system:kube-controller-manager
	for c in $(seq $nodes); do account "node$c" "system:node:n$c" system:nodes; done
	launch etcd "$bin/etcd" --data-dir "$dir/etcd" --listen-client-urls "$etcd" --advertise-client-urls "$etcd" --listen-peer-urls "$peer" \
		--initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" --unsafe-no-fsync --log-level warn
	launch kube-apiserver "$bin/kube-apiserver" --etcd-servers "$etcd" --bind-address "$server" --advertise-address "$server" --secure-port 6443 \
		--tls-cert-file "$dir/pki/server.crt" --tls-private-key-file "$dir/pki/server.key" --client-ca-file "$dir/pki/ca.crt" \
		--kubelet-client-certificate "$dir/pki/client.crt" --kubelet-client-key "$dir/pki/client.key" --kubelet-preferred-address-types InternalIP \
		--service-account-issuer https://kubernetes.default.svc --service-account-key-file "$dir/pki/accounts.pub" \
		--service-account-signing-key-file "$dir/pki/accounts.key" --token-auth-file "$dir/tokens.csv" --authorization-mode Node,RBAC \
		--enable-admission-plugins NodeRestriction --service-cluster-ip-range "$services" --cert-dir "$dir/apiserver"
	poll 60 "the API server" k get --raw /readyz
	launch kube-controller-manager "$bin/kube-controller-manager" --kubeconfig "$dir/controllers.kubeconfig" --leader-elect=false \
		--service-account-private-key-file "$dir/pki/accounts.key" --root-ca-file "$dir/pki/ca.crt" --use-service-account-credentials \
		--bind-address "$server" --cert-dir "$dir/controllers" --node-monitor-period 1s --node-monitor-grace-period ${grace}s
	launch kube-scheduler "$bin/kube-scheduler" --kubeconfig "$dir/scheduler.kubeconfig" --leader-elect=false --bind-address "$server" --cert-dir "$dir/scheduler"
}

node_files() { # node_files N
	local d=$dir/n$1
	mkdir -p "$d/cni" "$d/logs"
	cat >"$d/containerd.toml" <<-END
		version = 3
		root = "$d/containerd"
		state = "$d/state"
		disabled_plugins = ["io.containerd.nri.v1.nri"]
		[grpc]
		  address = "$d/containerd.sock"
		[plugins."io.containerd.cri.v1.images".pinned_images]
		  sandbox = "$pause"
		[plugins."io.containerd.cri.v1.runtime"]
		  disable_apparmor = true
		  restrict_oom_score_adj = true
		  netns_mounts_under_state_dir = true
		[plugins."io.containerd.cri.v1.runtime".cni]
		  bin_dirs = ["$bin/cni"]
		  conf_dir = "$d/cni"
		[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
		  runtime_type = "io.containerd.runc.v2"
	END
	cat >"$d/cni/pods.conflist" <<-END
		{"cniVersion": "1.0.0", "name": "pods", "plugins": [
		  {"type": "bridge", "bridge": "pods", "isDefaultGateway": true, "hairpinMode": true,
		    "ipam": {"type": "host-local", "dataDir": "$d/addresses", "ranges": [[{"subnet": "$two.$1.0/24"}]]}},
		  {"type": "firewall"}]}
	END
	cat >"$d/kubelet.yaml" <<-END
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		containerRuntimeEndpoint: unix://$d/containerd.sock
		cgroupDriver: cgroupfs
		cgroupRoot: /$cgroups-$1
		failCgroupV1: false
		failSwapOn: false
		readOnlyPort: 0
		authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$dir/pki/ca.crt"}}
		authorization: {mode: Webhook}
		podLogsDir: $d/logs
		volumePluginDir: $d/plugins
		resolvConf: ""
		nodeStatusUpdateFrequency: 2s
		nodeLeaseDurationSeconds: $grace
		imageGCHighThresholdPercent: 100
		evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
		maxPods: 240
	END
}

node() { # node N
	local d=$dir/n$1 i
	node_files "$1"
	for i in /sys/fs/cgroup/*/cgroup.procs; do
		[ "$(basename "${i%/*}")" = unified ] || [ ! -e "$i" ] || mkdir -p "${i%/*}/$cgroups-$1"
	done
	[ ! -e /sys/fs/cgroup/cgroup.controllers ] || mkdir -p "/sys/fs/cgroup/$cgroups-$1"
	rm -f "$d/containerd.sock" "$d/linked" "$d/up"
	launch "node$1" unshare --net --pid --mount --fork --kill-child --mount-proc "$here/cluster.sh" node-init "$1" "$d/"
	poll 20 "node $1" test -e "$d/started"
	rm -f "$d/started"
	local inside
	inside=$(cat "/proc/$(cat "$dir/node$1.pid")/task/$(cat "$dir/node$1.pid")/children")
	ip link add "$bridge-$1" type veth peer name eth0 netns "${inside%% *}"
	ip link set "$bridge-$1" master "$bridge" up
	touch "$d/linked"
	poll 30 "containerd of node $1" ctr "$1" version
	if [ ! -e "$d/imported" ]; then
		for i in "$dir"/images/*.tar; do ctr "$1" -n k8s.io images import "$i" >/dev/null 2>&1; done
		touch "$d/imported"
	fi
	touch "$d/up"
}

ctr() { # ctr N ARGUMENT…
	local n=$1
	shift
	"$bin/ctr" -a "$dir/n$n/containerd.sock" "$@"
}

# node_init is the first process of a node, in its namespaces.
node_init() { # node_init N
	local d=$dir/n$1 i
	mount --make-rshared /
	touch "$d/started"
	poll 20 "link of node $1" test -e "$d/linked"
	ip link set lo up
	ip addr add "$net.$((10 + $1))/24" dev eth0
	ip link set eth0 up
	ip route add default via "$server"
	for i in $(seq $nodes); do
		[ "$i" = "$1" ] || ip route add "$two.$i.0/24" via "$net.$((10 + i))"
	done
	echo 1 >/proc/sys/net/ipv4/ip_forward
	PATH=$bin:$PATH "$bin/containerd" --config "$d/containerd.toml" >>"$dir/containerd$1.log" 2>&1 &
	poll 60 "images of node $1" test -e "$d/up"
	"$bin/kubelet" --config "$d/kubelet.yaml" --kubeconfig "$dir/node$1.kubeconfig" --root-dir "$d/kubelet" --cert-dir "$d/kubelet/pki" \
		--hostname-override "n$1" --node-ip "$net.$((10 + $1))" >>"$dir/kubelet$1.log" 2>&1 &
	if [ "${KUBE_POLICY-}" != no ]; then
		poll 60 "node $1 in the cluster" k get node "n$1"
		"$bin/kube-router" --run-firewall=true --run-router=false --run-service-proxy=false --run-loadbalancer=false --kubeconfig="$dir/admin.kubeconfig" \
			--hostname-override="n$1" --service-cluster-ip-range="$services" --health-port=0 >>"$dir/kube-router$1.log" 2>&1 &
	fi
	wait
}

# images makes the image of the pods: Debian with interpreters, and the agent on it.
images() {
	local base=${KUBE_ROOTFS:-$(dirname "$bin")/minimal.tar} work=$dir/work
	mkdir -p "$dir/images" "$work/usr/local/bin"
	if [ ! -e "$base" ]; then
		command -v mmdebstrap >/dev/null || { say "there is no mmdebstrap"; exit 77; }
		go run -C "$root" ./cmd/sandboxmcp image build minimal --tar "$base.$$" >&2
		mv "$base.$$" "$base"
	fi
	CGO_ENABLED=0 go build -C "$root/backend/kube" -trimpath -ldflags '-s -w' -o "$work/usr/local/bin/sandboxmcp-agent" ./cmd/sandboxmcp-agent
	tar -C "$work" --owner 0 --group 0 --numeric-owner -cf "$dir/agent.tar" usr
	cp "$bin/support" "$work/support"
	tar -C "$work" --owner 0 --group 0 --numeric-owner -cf "$dir/pause.tar" support
	"$bin/support" image "$image" "$dir/images/sandbox.tar" /usr/local/bin/sandboxmcp-agent "$base" "$dir/agent.tar"
	"$bin/support" image "$pause" "$dir/images/pause.tar" '/support pause' "$dir/pause.tar"
}

nodes_ready() { [ "$(k get nodes --no-headers | grep -c ' Ready ')" = $nodes ]; }

agent_sandbox() {
	local f
	for f in "$bin"/crds/*.yaml; do # its conversion is served by a controller in the cluster
		k create --dry-run=client -f "$f" -o yaml | k patch --local --type merge -p '{"spec":{"conversion":{"strategy":"None","webhook":null}}}' -f - -o yaml
		echo ---
	done >"$dir/crds.yaml"
	k apply --server-side -f "$dir/crds.yaml" >/dev/null
	k wait --for=condition=Established crd --all --timeout=30s >/dev/null
	poll 30 "the kinds of agent-sandbox" k get sandboxwarmpools.extensions.agents.x-k8s.io
	k create namespace agent-sandbox-system >/dev/null
	KUBECONFIG=$dir/admin.kubeconfig launch agent-sandbox "$bin/agent-sandbox-controller" --extensions --enable-webhook=false --leader-elect=false \
		--metrics-bind-address="$server:18088" --health-probe-bind-address="$server:18089" --kubeconfig="$dir/admin.kubeconfig"
	poll 30 agent-sandbox curl -sf "http://$server:18089/readyz"
}

# confine keeps the packets of nodes and pods, which also try addresses of the internet, on a machine that forwards others' packets.
confine() {
	local file=/proc/sys/net/ipv4/conf/$bridge/forwarding
	[ "$(cat "$file")" = 0 ] || echo 0 >"$file"
}

# record keeps the machine's parameters for down. If there is another cluster, its kubelets have changed them already, and its
# record is the right one.
record() {
	local other
	for other in "${dir%.*}"*/parameters; do
		[ ! -O "$other" ] || { cp "$other" "$dir/parameters"; return; }
	done
	sysctl "${parameters[@]}" >"$dir/parameters" 2>/dev/null || true
}

up() {
	local started=$SECONDS i
	[ ! -e "$dir" ] || { say "$dir is there; take it down first"; exit 1; }
	[ ! -e "/sys/class/net/$bridge" ] || { say "$net is taken"; exit 1; }
	mkdir -m 755 "$dir"
	record
	trap 'status=$?; [ $status = 0 ] || [ -n "${KUBE_KEEP-}" ] || { tail -n 3 "$dir"/*.log >&2; down; }' EXIT
	trap 'exit 143' TERM INT HUP
	ln -s "$bin" "$dir/bin"
	images
	ip link add "$bridge" type bridge
	ip addr add "$server/24" dev "$bridge"
	ip link set "$bridge" up
	confine
	for i in $(seq $nodes); do ip route add "$two.$i.0/24" via "$net.$((10 + i))"; done
	certificates
	control_plane
	for i in $(seq $nodes); do node "$i"; done
	poll 60 "nodes" nodes_ready
	agent_sandbox
	k create namespace sandboxes >/dev/null
	poll 30 "the accounts of a namespace" k -n sandboxes get serviceaccount default
	k apply -f - >/dev/null <<-END
		apiVersion: networking.k8s.io/v1
		kind: NetworkPolicy
		metadata: {name: closed, namespace: sandboxes}
		spec: {podSelector: {}, policyTypes: [Egress], egress: []}
	END
	say "up after $((SECONDS - started)) s"
}

env_lines() {
	cat <<-END
		export KUBECONFIG_E2E=$dir/admin.kubeconfig KUBECONFIG=$dir/admin.kubeconfig KUBE_IMAGE=$image KUBE_NAMESPACE=sandboxes
		export KUBE_SERVER_IP=$server KUBE_API=$server:6443 KUBE_NODE_KILL='$here/cluster.sh node-kill' KUBE_NODE_START='$here/cluster.sh node-start'
		export KUBE_NODE_CUT='$here/cluster.sh node-cut' KUBE_NODE_JOIN='$here/cluster.sh node-join'
		export KUBE_DIR=$dir KUBE_NET=$net PATH=$bin:\$PATH
	END
	if [ "${KUBE_POLICY-}" != no ]; then echo "export KUBE_POLICY=1"; fi
}

[ "$(id -u)" = 0 ] || { say "only root can start nodes"; exit 77; }
for i in ip unshare iptables ipset openssl curl; do
	command -v $i >/dev/null || { say "there is no $i"; exit 77; }
done
if [ "${1-}" = down ]; then
	down
	exit
fi
bin=$(readlink "$dir/bin" || "$here/build.sh")
case ${1-} in
up) up ;;
env) env_lines ;;
node-kill) end_node "${2#n}" ;;
node-start) node "${2#n}" ;;
node-cut) ip link set "$bridge-${2#n}" down ;;
node-join) ip link set "$bridge-${2#n}" up ;;
node-init) node_init "$2" ;;
import) for i in $(seq $nodes); do ctr "$i" -n k8s.io images import "$2" >/dev/null; done ;;
*)
	sed -n '2,19s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
