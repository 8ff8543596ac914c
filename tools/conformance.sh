#!/bin/sh
# Runs the HTTP conformance cases of a folder ($1) against the real server, started once with each setting that cases ask for.
# A case listed in tools/conformance-pending.txt needs a route that does not exist yet: it must fail, and only for that reason; when it
# passes, take it off the list.
set -u
cases=$1
port=${CONFORMANCE_PORT:-18231}
log=$(mktemp)
export no_proxy=127.0.0.1 NO_PROXY=127.0.0.1 # the server is on this machine, whatever proxy leads out of it
failed=0
[ -f "$cases/run.py" ] || { echo "conformance: no run.py in $cases"; exit 2; }

# round NAME RUN-OPTIONS VARIABLE=VALUE...
round() {
	name=$1 options=$2
	shift 2
	env "$@" bin/ragate serve --listen 127.0.0.1:"$port" 2>"$log" &
	pid=$!
	tries=0
	until python3 - "$port" <<'PY'
import sys, urllib.request
try:
    urllib.request.urlopen("http://127.0.0.1:%s/ready" % sys.argv[1], timeout=2)
except Exception:
    sys.exit(1)
PY
	do
		tries=$((tries + 1))
		if ! kill -0 $pid 2>/dev/null || [ $tries -gt 600 ]; then
			echo "conformance: $name: the server did not become ready:"
			tail -n 5 "$log"
			kill $pid 2>/dev/null
			failed=1
			return
		fi
		sleep 0.2
	done
	# shellcheck disable=SC2086  # options are several words
	python3 "$cases/run.py" --base http://127.0.0.1:"$port" $options "$cases"/*.jsonl >"$log.out" 2>&1
	kill $pid
	wait $pid || { echo "conformance: $name: the server ended with status $?"; failed=1; }
	python3 tools/conformance_verdict.py "$name" "$log.out" tools/conformance-pending.txt || failed=1
}

round defaults "" RAGATE_LOG_LEVEL=error
round key "--key some-long-key" RAGATE_API_KEY=some-long-key
round small-limits "--have body_limit_small,items_limit_small" RAGATE_MAX_BODY_BYTES=16384 RAGATE_MAX_ITEMS=32 RAGATE_MAX_DOCUMENTS=16
round small-queue "--have queue_small" RAGATE_MAX_QUEUED_TOKENS=600
round small-batch "--have batch_budget_small" RAGATE_MAX_BATCH_TOKENS=128
rm -f "$log" "$log.out"
exit $failed
