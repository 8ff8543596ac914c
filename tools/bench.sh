#!/bin/sh
# Benchmarks, called by `make bench` after setup: about seven minutes on two quiet cores. Nothing here fails because of a figure; a part that cannot be
# measured, or that gives wrong answers, fails.
#
# RAGATE_DATA_DIR names the store, whose python folder has the packages of tools/requirements.txt. Recorded results are kept in
# benchmarks/results.
set -eu
cd "$(dirname "$0")/.."
data=${RAGATE_DATA_DIR:-.ragate}
python=${PYTHON:-python3}

echo "== Tokenizer: package tokenize against Hugging Face tokenizers, one thread each"
PYTHONPATH="$data/python" "$python" tools/bench_tokenizer.py --rounds 5

multilingual=$data/models/intfloat--multilingual-e5-small/tokenizer.json
if [ -f "$multilingual" ]; then
	echo
	echo "== Tokenizer of the multilingual model (there after make setup-multilingual)"
	PYTHONPATH="$data/python" "$python" tools/bench_tokenizer.py --rounds 5 --multilingual "$multilingual"
fi

# Name, so that a package whose benchmarks are gone is seen to have none.
micro() {
	echo
	echo "== $1"
	out=$(RAGATE_DATA_DIR="$data" go test -run '^$' -bench "$3" -benchtime "$4" -benchmem "$2")
	echo "$out"
	echo "$out" | grep -q '^Benchmark' || { echo "bench: $2 has no benchmark that matches $3" >&2; exit 1; }
}
micro "SIMD: dot products and top-k against a plain loop and against memory bandwidth" ./simd . 300ms
micro "Scheduler: batches formed, without a model" ./inference . 300ms
micro "Wire: a rerank request through the server, with a stub for the model" ./server 'RerankRequest|Vector|ReadObject' 300ms

echo
echo "== Server against the raw session"
go run ./benchmarks/servebench --ragate bin/ragate --data-dir "$data"

echo
echo "== The gates against the raw sessions"
go run ./benchmarks/gatebench --ragate bin/ragate --data-dir "$data"

echo
echo "== Overload: goodput, retries, and a client beside one that floods"
go run ./benchmarks/overload --ragate bin/ragate --data-dir "$data"
