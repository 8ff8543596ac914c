#!/bin/sh
# Benchmarks, called by `make bench` after setup: about twelve minutes on two quiet cores. Nothing here fails because of a figure; a part that cannot be
# measured, or that gives wrong answers, fails.
#
# RAGATE_DATA_DIR names the store, whose python folder has the packages of tools/requirements.txt. OUT is the folder of the results, each file
# named by date and commit. TEI_RERANK and TEI_EMBED are the addresses of text-embeddings-inference servers on this machine, one with the
# reranker and one with the embedder: without them the comparison is left out, and the table of goals says so.
set -eu
cd "$(dirname "$0")/.."
data=${RAGATE_DATA_DIR:-.ragate}
python=${PYTHON:-python3}
out=${OUT:-benchmarks/results}
mkdir -p "$out"
name="$out/$(date +%F)-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"

echo "== Tokenizer: package tokenize against Hugging Face tokenizers, one thread each"
PYTHONPATH="$data/python" "$python" tools/bench_tokenizer.py --rounds 5

multilingual=$data/models/intfloat--multilingual-e5-small/tokenizer.json
if [ -f "$multilingual" ]; then
	echo
	echo "== Tokenizer of the multilingual model"
	PYTHONPATH="$data/python" "$python" tools/bench_tokenizer.py --rounds 5 --multilingual "$multilingual"
fi

# Name, so that a package whose benchmarks are gone is seen to have none.
micro() {
	echo
	echo "== $1"
	printed=$(RAGATE_DATA_DIR="$data" go test -run '^$' -bench "$3" -benchtime "$4" -benchmem "$2")
	echo "$printed"
	echo "$printed" | grep -q '^Benchmark' || { echo "bench: $2 has no benchmark that matches $3" >&2; exit 1; }
}
micro "SIMD: dot products and top-k against a plain loop and against memory bandwidth" ./simd . 300ms
micro "Scheduler: batches formed, without a model" ./inference . 300ms
micro "Wire: a rerank request through the server, with a stub for the model" ./server 'RerankRequest|Vector|ReadObject' 300ms
echo "$printed" >"$name-wire.txt"

echo
echo "== Server against the raw session"
go run ./benchmarks/servebench --ragate bin/ragate --data-dir "$data" --out "$name-server.json"

echo
echo "== The gates against the raw sessions"
go run ./benchmarks/gatebench --ragate bin/ragate --data-dir "$data" --out "$name-gates.json"

echo
echo "== Overload: goodput, retries, and a client beside one that floods"
go run ./benchmarks/overload --ragate bin/ragate --data-dir "$data" --out "$name-overload.json"

echo
echo "== Every workload, by one client and by four"
RAGATE_DATA_DIR="$data" bin/ragate bench --start bin/ragate --clients 1,4 --rounds 3 --json "$name-workloads.json" --html "$name-workloads.html"

set -- --server "$name-server.json" --wire "$name-wire.txt"
if [ -n "${TEI_RERANK:-}" ]; then
	echo
	echo "== Reranking against text-embeddings-inference, in turns"
	RAGATE_DATA_DIR="$data" bin/ragate bench --start bin/ragate --against-url "$TEI_RERANK" --against-dialect tei --workload rerank-10x128 --workload rerank-20-mixed \
		--json "$name-tei-rerank.json" --html "$name-tei-rerank.html"
	set -- "$@" --rerank "$name-tei-rerank.json"
fi
if [ -n "${TEI_EMBED:-}" ]; then
	echo
	echo "== Query embeddings against text-embeddings-inference, in turns"
	RAGATE_DATA_DIR="$data" bin/ragate bench --start bin/ragate --against-url "$TEI_EMBED" --against-dialect tei --workload embed-query --clients 16 \
		--json "$name-tei-embed.json" --html "$name-tei-embed.html"
	set -- "$@" --embed "$name-tei-embed.json"
fi

go run ./benchmarks/goals "$@"
echo
echo "The figures are in $name-*"
