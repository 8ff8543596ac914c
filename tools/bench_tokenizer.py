#!/usr/bin/env python3
"""Measures package tokenize and Hugging Face tokenizers side by side, on one thread each, over English passages.

    bench_tokenizer.py [--rounds 7]

Needs Go and a Python with `tokenizers`. The two take turns, so that a noisy machine is noisy for both; the ratio is that of
their best rounds, with the range of the rounds' own ratios beside it. The passages are those of tokenize/testdata.
"""

import argparse
import gzip
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402  (reads the environment)

PACKAGE = pathlib.Path(__file__).resolve().parent.parent / "tokenize"
BENCHMARKS = {"AppendIDs": "BenchmarkAppendIDs/passages", "Encode": "BenchmarkEncode"}


def go_rates(binary):
    """MB/s of each of BENCHMARKS."""
    rates = {}
    for name, pattern in BENCHMARKS.items():
        exact = "/".join(f"^{part}$" for part in pattern.split("/"))
        out = subprocess.run(
            [binary, "-test.run=^$", f"-test.bench={exact}", "-test.benchtime=300ms"],
            cwd=PACKAGE, env={**os.environ, "GOMAXPROCS": "1"}, capture_output=True, text=True, check=True,
        ).stdout
        found = re.search(rf"^{pattern}\S*\s.*?([\d.]+) MB/s", out, re.M)
        if not found:
            raise SystemExit(f"no result of {pattern} in:\n{out}")
        rates[name] = float(found[1])
    return rates


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=7)
    args = p.parse_args()

    reference = tokenizers.Tokenizer.from_str(gzip.open(PACKAGE / "testdata/tokenizer.json.gz", "rt").read())
    reference.no_padding()
    reference.no_truncation()
    texts = gzip.open(PACKAGE / "testdata/cranfield.txt.gz", "rt", newline="").read().split("\x1e")
    size = sum(len(t.encode()) for t in texts)
    ways = {
        "encode": lambda: [reference.encode(t) for t in texts],
        "encode_batch": lambda: reference.encode_batch(texts),
        "encode_batch_fast": lambda: reference.encode_batch_fast(texts),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        binary = str(pathlib.Path(folder) / "tokenize.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "."], cwd=PACKAGE, check=True)
        for _ in range(args.rounds):
            row = {}
            for name, run in ways.items():
                start = time.perf_counter()
                run()
                row[name] = size / (time.perf_counter() - start) / 1e6
            row.update(go_rates(binary))
            rows.append(row)

    best = {name: max(row[name] for row in rows) for name in rows[0]}
    print(f"{len(texts)} passages, {size / 1e6:.2f} MB, tokenizers {tokenizers.__version__}, one thread, best of {args.rounds} rounds")
    for name, rate in best.items():
        print(f"  {'tokenizers' if name in ways else 'ragate':10} {name:18} {rate:8.1f} MB/s")
    for ours in BENCHMARKS:
        for theirs in ways:
            each = [row[ours] / row[theirs] for row in rows]
            print(f"  {ours} : {theirs} = {best[ours] / best[theirs]:.0f}   (rounds {min(each):.0f} to {max(each):.0f}, median {statistics.median(each):.0f})")


if __name__ == "__main__":
    main()
