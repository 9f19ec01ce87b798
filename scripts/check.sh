#!/usr/bin/env bash
# Everything that CI asks for. Every step runs, whatever came of the one before;
# the last line sums them up.
set -uo pipefail
cd "$(dirname "$0")/.."

# A skip would hide a fault on a machine that is known to have these.
if [ "$(id -u)" = 0 ]; then
	export SANDBOXMCP_MUST_RUN=${SANDBOXMCP_MUST_RUN-root,user,userns,cgroup,python,node,bash,browser,pdf,initbytes,apparmor,qemu,postgres,docker,kube}
fi
must=${SANDBOXMCP_MUST_RUN-}
# These words are for the steps with an engine and with a cluster alone.
SANDBOXMCP_MUST_RUN=$(tr , '\n' <<<"$must" | grep -vxE 'docker|kube' | paste -sd,)

TEST_SUMS=$(mktemp -d)
export TEST_SUMS
tools=$(mktemp -d)
trap 'end; rm -rf "$TEST_SUMS" "$tools"' EXIT
go build -C tools -o "$tools/" ./testsum ./tree || exit 1
n=0
declare -A beside

step() { # step NAME COMMAND…: 0 is good, 77 is "cannot be tried here"
	local name=$1 started=$SECONDS status
	shift
	echo "== $name"
	"$@"
	status=$?
	verdict "$name" $status $((SECONDS - started))
}

later() { # later NAME COMMAND…: a step beside the next ones; finish waits for it
	local name=$1
	shift
	set -m # a process group of its own, for end
	(
		started=$SECONDS
		"$@"
		echo "$? $((SECONDS - started))" >"$tools/$name.end"
	) >"$tools/$name.log" 2>&1 &
	beside[$name]=$!
	set +m
}

idle() { # idle NAME COMMAND…: as later, with the processor time that the next steps leave
	local name=$1
	shift
	# The kernel shares the processors among sessions first (sched_autogroup), and then by nice.
	later "$name" setsid --wait bash -c 'echo $$ >"$0"; echo 19 >/proc/self/autogroup; exec nice -n 19 "$@"' "$tools/$name.session" "$@"
}

end() { # ends the steps that nobody will wait for, if this program is interrupted
	local name
	for name in "${!beside[@]}"; do
		kill -- "-${beside[$name]}" "-$(cat "$tools/$name.session" 2>/dev/null || echo "${beside[$name]}")" 2>/dev/null
		wait "${beside[$name]}"
	done
}

finish() { # finish NAME
	local name=$1 status=1 seconds=0
	wait "${beside[$name]}"
	unset "beside[$name]"
	echo "== $name"
	cat "$tools/$name.log"
	read -r status seconds <"$tools/$name.end"
	verdict "$name" "$status" "$seconds"
}

verdict() { # verdict NAME STATUS SECONDS
	local name=$1 status=$2 verdict
	n=$((n + 1))
	case $status in 0) verdict=pass ;; 77) verdict=skip ;; *) verdict=fail ;; esac
	"$tools/testsum" note "$name" "$TEST_SUMS/0-$(printf %02d $n)" "$verdict" "exit $status in $3 s"
}

init_bytes() {
	[ -x internal/jail/init/build.sh ] || { echo "there is no internal/jail/init/build.sh" >&2; return 1; }
	internal/jail/init/build.sh --check
	local status=$?
	# 3: the compilers are not there, or other ones than the bytes were made with.
	if [ $status = 3 ] && [[ ",$must," != *,initbytes,* ]]; then return 77; fi
	return $status
}

# Without an engine the step is skipped, unless the word docker says that there is one.
container_engine() {
	local word=''
	if [[ ",$must," = *,docker,* ]]; then word=docker; fi
	SANDBOXMCP_MUST_RUN=$word scripts/engine-test.sh
	local status=$?
	if [ $status = 77 ] && [ -n "$word" ]; then return 1; fi
	return $status
}

# Without a PostgreSQL server the step is skipped, unless the word postgres says that there is one.
database_server() {
	scripts/postgres-test.sh -short -count=1
	local status=$?
	if [ $status = 77 ] && [[ ",$must," = *,postgres,* ]]; then return 1; fi
	return $status
}

# Without root there is no cluster, and the step is skipped, unless the word kube says that there is one. A failed
# step is tried once more, as a failed test is.
cluster() {
	local status
	for try in first second; do
		SANDBOXMCP_MUST_RUN='' scripts/kube-test.sh -short -count=1
		status=$?
		[ $status != 0 ] && [ $status != 77 ] && [ $try = first ] || break
		echo "UNSTEADY  Kubernetes failed, and is tried once more"
	done
	if [ $status = 77 ] && [[ ",$must," = *,kube,* ]]; then return 1; fi
	return $status
}

started=$SECONDS
step "set-up" scripts/setup.sh run kit science user browser pdf init clients engine evidence postgres kube
# Without caches, these need the processors for a quarter of an hour. The tests mostly wait.
idle "tools" scripts/tools.sh
later "MCP clients" scripts/clients.sh
later "package set" scripts/science.sh
step "go.mod" scripts/modules.sh go mod tidy -diff
step "no large files" "$tools/tree" blobs .
step "recent benchmark" "$tools/tree" benchmarks .
step "generated files" scripts/generate-diff.sh
idle "format and lint" scripts/lint.sh # it reads what the last step writes
step "bytes of the small init" init_bytes
step "builds everywhere" scripts/cross.sh
finish "MCP clients"
finish "package set"
# Without a way to the registries their tests are skipped; installed, they run.
must_tests=$SANDBOXMCP_MUST_RUN
if [ -n "$must" ] && [ -e .tools/clients/ready ]; then must_tests+=,clients,registry,mcpb; fi
if [ -n "$must" ] && [ -e .tools/science/ready ]; then must_tests+=,science; fi
# The linter vets all packages; go test would do it, too.
export GOFLAGS="${GOFLAGS-} -vet=off"
SANDBOXMCP_MUST_RUN=$must_tests scripts/test.sh || echo "test.sh ended with $?" >>"$TEST_SUMS/.broken"
finish "tools"
later "Kubernetes" cluster # it waits for pods most of the time
step "container engine" container_engine
step "PostgreSQL" database_server
finish "Kubernetes"
finish "format and lint"
[ ! -e "$TEST_SUMS/.broken" ] || "$tools/testsum" note "tests" "$TEST_SUMS/9-broken" fail "$(cat "$TEST_SUMS/.broken")"
echo
echo "took $((SECONDS - started)) s"
"$tools/testsum" total "$TEST_SUMS"/*
