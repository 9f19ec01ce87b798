#!/usr/bin/env bash
# Runs all tests, in this order:
#   1. go test, as who you are
#   2. as root: the same test programs once more as ordinary users that this script
#      makes and removes, who have no subordinate ids, no cgroup and a clean home.
#      There are three, and each has a package at a time
#   3. beside these, the acceptance kit, where it lies beside the checkout, as you and
#      as a fourth user; with the package set that scripts/science.sh has installed, if
#      it could
#   4. a look at what was left on the machine
# and ends with one line, "N passed, N failed, N skipped".
#
# TEST_ALL=1           also the tests that go test -short leaves out
# SANDBOXMCP_MUST_RUN  words of what this machine offers; see internal/testkit
# TEST_SUMS            a directory for the counts; then the caller sums up
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD

must=${SANDBOXMCP_MUST_RUN-}
short=-short
if [ "${TEST_ALL-}" = 1 ]; then short=-short=false; fi
kit=../shared/acceptance
groups=exec,files,sessions,cli,mcp,config,audit,egress,vault,limits,validate,web,packages,host,http
users=(sandboxmcp-test sandboxmcp-test-2 sandboxmcp-test-3 sandboxmcp-test-4)
user=${users[0]}
clean_path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# One directory for everything, with a short name: sockets live in it, and the
# kernel allows their paths 107 bytes. The other users have to be able to enter.
work=$(mktemp -d /tmp/smt.XXXXXX)
chmod 755 "$work"
mkdir "$work/r" "$work/b" # scratch of the first user; programs
sums=${TEST_SUMS:-$work/sums}
mkdir -p "$sums"
made=() # users
uids=() # of all
uid='' # of the one that runs the kit

finish() {
	local name
	# The children of a shell that the kit runs in: the kit, which ends what it has started.
	[ -z "${kit_pid-}" ] || xargs -r kill <"/proc/$kit_pid/task/$kit_pid/children" 2>/dev/null || true
	for name in "${made[@]}"; do
		# Whatever runs as a user that was made here is ours to end.
		find /proc -maxdepth 1 -name '[0-9]*' -uid "$(id -u "$name")" -printf '%f\n' 2>/dev/null | xargs -r kill -9 2>/dev/null || true
		userdel -f "$name" >/dev/null 2>&1 || true
	done
	chmod -R u+rwX "$work" 2>/dev/null || true
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT HUP

# No setting of yours reaches the tests.
while IFS= read -r name; do unset "$name"; done < <(compgen -e | grep -iE '^SANDBOX(MCP)?_' || true)

testsum=$work/b/testsum
go build -C tools -o "$testsum" ./testsum
go build -trimpath -o "$work/b/test2json" cmd/test2json

phase() { # phase NAME: says how long the last one took
	[ -z "${phase_began-}" ] || echo "(took $((SECONDS - phase_began)) s)"
	phase_began=$SECONDS
	echo "== $1"
}

less() { # less WORD LIST: the list of words without that one
	local out=() w
	for w in ${2//,/ }; do [ "$w" = "$1" ] || out+=("$w"); done
	(IFS=,; echo "${out[*]-}")
}

# Tries what failed in a suite once more, alone, and marks it as unsteady if it passes. The
# reasons are in docs/adr/0074-a-failed-test-is-tried-alone.md.
again() { # again FILE COMMAND…: the command gets the directory and the pattern for -run, or the case
	local file=$1 name dir run
	shift
	[ -e "$file" ] || return 0
	while IFS=$'\t' read -r name dir run <&3; do
		echo "== once more, alone: $name"
		if "$@" "$dir" "$run" </dev/null; then "$testsum" alone "$file" "$name"; fi
	done 3< <("$testsum" failed "$file")
}

me=$(id -un)
if [ "$(id -u)" = 0 ]; then must_me=$(less user "$must"); else must_me=$(less root "$must"); fi
must_user=$must
for word in root cgroup clients registry mcpb qemu; do must_user=$(less "$word" "$must_user"); done # clients are not in the copy of the tree, pip is not configured, and there is no Go

"$root/scripts/leftovers.sh" "$root/bin" "$work" >"$work/before"

my_tests() { TMPDIR=$work/r XDG_STATE_HOME=$work/r/state SANDBOXMCP_MUST_RUN=$must_me "$@" </dev/null 2>&1; }
my_test_alone() { (cd "$1" && my_tests go test -json -count=3 "$short" -timeout 10m -run "$2" .) | "$testsum" go alone "$work/alone"; }

# As root, each test program is kept for the other users, so that it is linked once.
exec_option=()
if [ "$(id -u)" = 0 ]; then
	exec_option=(-exec "$work/b/keep")
	mkdir "$work/kept"
	cat >"$work/b/keep" <<-END
		#!/bin/sh
		# keep PROGRAM ARGUMENT…: go test calls it in the directory of the package
		dir="$work/kept\${PWD#"$root"}"
		mkdir -p "\$dir" && ln "\$1" "\$dir/t.test"
		exec "\$@"
	END
	chmod 755 "$work/b/keep"
fi

phase "go test as $me"
my_tests scripts/modules.sh go test -json -shuffle=on "$short" -timeout 20m "${exec_option[@]}" ./... | "$testsum" go "go test as $me" "$sums/1-go-$me" || true
again "$sums/1-go-$me" my_test_alone

# make_user N NAME: an ordinary user with the directories hN and uN; its environment is in as_user_N
make_user() {
	local home=$work/h$1 tmp=$work/u$1
	if ! id "$2" >/dev/null 2>&1; then
		useradd --system --user-group --no-create-home --home-dir "$home" --shell /usr/sbin/nologin "$2"
		made+=("$2")
	fi
	if grep -qs "^$2:" /etc/subuid /etc/subgid; then
		echo "test.sh: $2 has subordinate ids, and the tests need a user without" >&2
		return 1
	fi
	uid=$(id -u "$2") gid=$(id -g "$2")
	uids+=("$uid")
	mkdir "$home" "$tmp"
	chown "$uid:$gid" "$home" "$tmp"
	chmod 700 "$home" "$tmp"
	as_user=(setpriv --reuid "$uid" --regid "$gid" --clear-groups --inh-caps=-all -- env -i
		HOME="$home" USER="$2" LOGNAME="$2" LANG=C.UTF-8 PATH="$clean_path" TMPDIR="$tmp"
		SANDBOXMCP_MUST_RUN="$must_user")
	declare -gx "as_user_$1=$(printf '%q ' "${as_user[@]}")" # a shell exports no list
}

other_users() {
	# Two runs at once would share the users: the second waits. A file that is
	# there anyway is locked, so that nothing is left behind.
	exec 9<"$(command -v useradd)"
	flock 9
	local n
	for n in 0 1 2 3; do make_user $n "${users[n]}" || return; done # uid, gid and as_user are those of the last one
}

# A copy of the sources that the users can read: tests read files beside them.
copy_tree() {
	mkdir "$work/src"
	git ls-files -z --cached --others --exclude-standard | tar -c --null --ignore-failed-read -T - 2>/dev/null | tar -x -C "$work/src"
	cp -rl "$work/kept/." "$work/src"
	chmod -R a+rX "$work/src"
}

user_tests() {
	local list=$work/packages
	scripts/modules.sh go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}} {{.ImportPath}}{{end}}' ./... | sed "s|^$root/\{0,1\}||" | grep -v '^ ' >"$list"
	export -f user_package
	export work short
	# Each package has a user of its own at a time: the kernel counts watches and processes by user. The
	# tests wait more than they compute, so there are three on two cores. These two take longest.
	local first='^(engine|backend/process) '
	{ grep -E "$first" "$list"; grep -vE "$first" "$list"; } | xargs -r -P 3 --process-slot-var=lane -L 1 bash -c 'user_package "$@"' _
}

# Runs the tests of a package as the user of this lane, 0 to 2, and prints what they did in one piece.
user_package() { # user_package DIRECTORY PACKAGE [OPTION…]
	local dir=$1 pkg=$2 env=as_user_${lane:-0} out as
	shift 2
	out=$(mktemp "$work/json.XXXXXX")
	eval "as=(${!env})"
	if [ -x "$work/src/$dir/t.test" ]; then
		(cd "$work/src/$dir" && "$work/b/test2json" -t -p "$pkg" "${as[@]}" ./t.test -test.v=test2json -test.shuffle=on "-test.${short#-}" -test.timeout=20m -test.paniconexit0 "$@" </dev/null >"$out" 2>&1) || true
	else
		printf '{"Action":"output","Package":"%s","Output":"the test program did not build\\n"}\n{"Action":"fail","Package":"%s"}\n' "$pkg" "$pkg" >"$out"
	fi
	flock "$work/json.lock" cat "$out"
	rm "$out"
}

user_test_alone() { user_package "$1" "github.com/sandboxmcp/sandboxmcp${1#.}" -test.count=3 -test.run "$2" | "$testsum" go alone "$work/alone"; }

# Gives a user a state directory with the package set science, for KIT_SCIENCE.
# Where the user's Python is of another kind than the one that the set was made
# for, the set is fetched once more, with the caller's settings of pip.
science() { # science DIRECTORY COMMAND…: the command runs its arguments as the user
	local dir=$1
	shift
	if [ ! -e .tools/science/ready ]; then
		echo "the package set science is not installed; scripts/science.sh does it"
	elif mkdir -m 700 "$dir" && cp -a --reflink=auto .tools/science/state/environments "$dir" &&
		{ [ "$dir" = "$work/science-r" ] || chown -R "$uid:$gid" "$dir"; } &&
		"$@" SANDBOXMCP_STATE_DIR="$dir" PIP_CACHE_DIR="$dir/pip" "$work/b/sandboxmcp" setup science; then
		return
	fi >"$work/science.log" 2>&1
	if [[ ",$must," = *,science,* ]]; then
		"$testsum" note "package set" "$sums/2-science-$(basename "$dir")" fail "$(tail -n 3 "$work/science.log" | tr '\n' ' ')" || true
	fi
	return 1
}

# What pip is told by the environment: index, proxy, certificates.
pip_env() { env | grep -iE '^(PIP_[A-Z_]+|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|(https?|no|all)_proxy)=' || true; }

# Begins the kit, as who you are and as the fourth user. A case takes a third of a processor.
begin_kits() {
	cp -r "$kit" "$work/kit"
	CGO_ENABLED=0 go build -o "$work/b/sandboxmcp" ./cmd/sandboxmcp || true
	cp .ci/acceptance.except "$work/acceptance.except"
	chmod -R a+rX "$work/kit" "$work/b" "$work/acceptance.except"
	python=python3
	if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=/usr/bin/python3; fi
	accept=("$work/kit/run" --bin "$work/b/sandboxmcp" --group "$groups" --except "$work/acceptance.except")
	# Some cases of these groups need the package set, and without it they are skipped.
	must_kit=() must_kit_bare=()
	if [ -n "$must" ]; then must_kit=(--must-run "$groups") must_kit_bare=(--must-run "${groups/exec,files,sessions,/}"); fi
	kit_env=(env -u KIT_SCIENCE) kit_must=("${must_kit_bare[@]}")
	if science "$work/science-r" env; then kit_env=(env KIT_SCIENCE="$work/science-r") kit_must=("${must_kit[@]}"); fi
	my_kit >"$work/kit.log" &
	kit_pid=$!
	[ -n "$uid" ] || return 0
	mapfile -t pip_env < <(pip_env)
	user_kit_env=() user_kit_must=("${must_kit_bare[@]}")
	if science "$work/science-u" "${as_user[@]}" "${pip_env[@]}"; then user_kit_env=(KIT_SCIENCE="$work/science-u") user_kit_must=("${must_kit[@]}"); fi
	user_kit >"$work/kit-user.log" &
	user_kit_pid=$!
}

my_kit() { "${kit_env[@]}" "$python" "${accept[@]}" "${kit_must[@]}" "$@" </dev/null 2>&1; }
user_kit() { (cd "$work" && "${as_user[@]}" "${user_kit_env[@]}" python3 "${accept[@]}" "${user_kit_must[@]}" "$@" </dev/null 2>&1); }

# A group that left something is run once more.
my_case_alone() { my_kit --only "${2/%nothing-left/*}" | "$testsum" kit alone "$work/alone"; }
user_case_alone() { user_kit --only "${2/%nothing-left/*}" | "$testsum" kit alone "$work/alone"; }

# Waits for the kits, and tries alone what failed.
end_kits() {
	phase "acceptance as $me"
	wait "$kit_pid" || true
	kit_pid=''
	"$testsum" kit "acceptance as $me" "$sums/3-kit-$me" <"$work/kit.log" || true
	if [ -n "${user_kit_pid-}" ]; then
		phase "acceptance as ${users[3]}"
		wait "$user_kit_pid" || true
		"$testsum" kit "acceptance as ${users[3]}" "$sums/4-kit-user" <"$work/kit-user.log" || true
	fi
	phase "acceptance, what is tried alone"
	again "$sums/3-kit-$me" my_case_alone
	[ -z "${user_kit_pid-}" ] || again "$sums/4-kit-user" user_case_alone
	# This case is an exception above, because it wants another default than the contract has. With the
	# bound that it wants it has to pass.
	"$python" "$work/kit/run" --bin "$work/b/sandboxmcp" --only http/queue_full --setting SANDBOXMCP_MAX_QUEUED=64 </dev/null 2>&1 |
		"$testsum" kit "acceptance with max_queued 64" "$sums/3-kit-bound" || true
}

made_users=''
if [ "$(id -u)" = 0 ]; then
	if other_users; then
		made_users=1
	else
		"$testsum" note "go test as $user" "$sums/2-go-user" fail "the other users could not be made" || true
	fi
fi
if [ -x "$kit/run" ]; then
	begin_kits
else
	"$testsum" note acceptance "$sums/3-kit" skip "the acceptance kit is not beside the checkout" || true
fi
if [ -n "$made_users" ]; then
	phase "go test as $user, beside the acceptance kit"
	copy_tree
	user_tests | "$testsum" go "go test as $user" "$sums/2-go-user" || true
fi
if [ -x "$kit/run" ]; then end_kits; fi
if [ -n "$made_users" ]; then
	phase "go test as $user, what is tried alone"
	again "$sums/2-go-user" user_test_alone
fi

phase "what was left"
left() {
	"$root/scripts/leftovers.sh" "$root/bin" "$work" | sort | comm -13 <(sort "$work/before") -
	# testscript leaves its directory, empty, if only some of its scripts were run.
	find "$work"/{r,u?,h?} -mindepth 1 -maxdepth 1 ! -name 'go-build*' ! '(' -name 'go-test-script*' -empty ')' -printf 'file %p\n' 2>/dev/null | grep -v "$work/r/state$" || true
	local id
	for id in "${uids[@]}"; do
		find /proc -maxdepth 1 -name '[0-9]*' -uid "$id" -printf '%f\n' 2>/dev/null | while read -r pid; do
			# A dead one that nobody has reaped is not ours to answer for.
			grep -qs '^State:.[^ZX]' "/proc/$pid/status" && echo "process $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | head -c 80)"
		done || true
	done
}
for _ in $(seq 50); do
	rest=$(left)
	[ -n "$rest" ] || break
	sleep 0.1
done
if [ -z "$rest" ]; then
	"$testsum" note nothing-left "$sums/5-left" pass "no process, mount, cgroup or file stayed" || true
else
	"$testsum" note nothing-left "$sums/5-left" fail "$(tr '\n' ';' <<<"$rest")" || true
	# End what is ours, so that the machine is clean for the next run.
	sed -n 's/^process \([0-9]*\).*/\1/p' <<<"$rest" | xargs -r kill -9 2>/dev/null || true
fi

if [ -z "${TEST_SUMS-}" ]; then "$testsum" total "$sums"/*; fi
