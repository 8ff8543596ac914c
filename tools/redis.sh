#!/bin/sh
# The tests of the shared cache, against a real Redis or Valkey that they start themselves. `make test-cache` calls it, with RAGATE_DATA_DIR
# set. REDIS_SERVER names the program; else it is looked for, and where there is none and the machine has apt, installed.
set -eu
cd "$(dirname "$0")/.."
find_server() {
	for name in "${REDIS_SERVER:-}" redis-server valkey-server; do
		[ -n "$name" ] && command -v "$name" && return 0
	done
	return 1
}
if ! server=$(find_server); then
	sudo=
	[ "$(id -u)" = 0 ] || sudo="sudo -n"
	if command -v apt-get >/dev/null; then
		echo "test-cache: installing redis-server"
		$sudo apt-get install -y -qq redis-server >/dev/null || { $sudo apt-get update -qq && $sudo apt-get install -y -qq redis-server >/dev/null; } || true
	fi
	server=$(find_server) || { echo "test-cache: NO REDIS: install redis-server or valkey-server, or name the program in REDIS_SERVER" >&2; exit 1; }
fi
export REDIS_SERVER="$server"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
go vet -tags redis ./cache ./internal/e2e
go test -count=1 -race -tags redis -v ./cache >"$log" 2>&1 || { cat "$log"; exit 1; }
spoken=$(grep -o 'a real Redis was spoken to: version .*' "$log") || { echo "test-cache: no test spoke to a Redis" >&2; exit 1; }
echo "test-cache: $spoken ($server); $(grep -c '^--- PASS' "$log") tests passed"
go test -count=1 -timeout 20m -tags redis -run 'SharedCache' -v ./internal/e2e >"$log" 2>&1 || { cat "$log"; exit 1; }
grep -q '^--- PASS: TestSharedCache' "$log" || { echo "test-cache: no test started servers" >&2; exit 1; }
echo "test-cache: $(grep -c '^--- PASS' "$log") tests with servers that share a Redis passed"
