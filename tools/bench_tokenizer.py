#!/usr/bin/env python3
"""Measures package tokenize and Hugging Face tokenizers side by side, on one thread each.

    bench_tokenizer.py [--rounds 7] [--multilingual TOKENIZER.JSON]

Over English passages, with the tokenizer of the default models; or with that of multilingual-e5-small, which lies in the store that
RAGATE_DATA_DIR names, over as many English and Dutch ones.

Needs Go and a Python with `tokenizers`. The two take turns, so that a noisy machine is noisy for both; the ratio is that of
their best rounds, with the range of the rounds' own ratios beside it. The passages are those of tokenize/testdata.
"""

import argparse
import gzip
import json
import os
import pathlib
import random
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
MULTILINGUAL = {"AppendIDs": "BenchmarkMultilingual/AppendIDs", "Encode": "BenchmarkMultilingual/Encode"}

SMALL = """de het een van en in is dat op te voor met zijn er aan niet om ook als dan maar bij nog uit wel door naar over tot deze die wordt
werden kan kunnen moet zal zou heeft hebben had worden meer geen veel wat hoe waar wanneer waarom onder tussen tegen volgens zonder""".split()
NOUNS = """gemeente water stad huis school regering bedrijf jaar week dag vergunning aanvraag dienst kosten rekening verzekering zorg patiënt
arts ziekenhuis onderzoek resultaat temperatuur druk vleugel vliegtuig snelheid lucht stroming grenslaag laag proef model meting kracht
energie netwerk gegevens beveiliging gebruiker wachtwoord toegang systeem fout melding bestand map scherm toets geluid beeld taal woord
boek bibliotheek student docent universiteit weg spoor trein fiets auto haven schip dijk rivier zee kust landbouw boer koe melk kaas brood
markt prijs belasting inkomen arbeid staking vakbond contract wet rechter politie misdaad straf gevangenis koning ministerie verkiezing
partij oorlog vrede geschiedenis eeuw kunst schilder muziek orkest toneel film krant journalist nieuws coördinatie reünie ruïne""".split()
VERBS = """besluit onderzoekt verandert verbetert vermindert verhoogt beschrijft bepaalt gebruikt berekent vergelijkt ontwikkelt bouwt
opent sluit betaalt verwacht verklaart toont levert ontvangt vraagt beantwoordt controleert bevestigt annuleert wijzigt verwijdert""".split()


def dutch(rng, size):
    """A passage of Dutch sentences of about so many bytes, with the compounds that the language makes of its nouns."""
    out = []
    length = 0
    while length < size:
        words = []
        for _ in range(rng.randint(6, 18)):
            kind = rng.random()
            noun = rng.choice(NOUNS)
            if kind < 0.5:
                words.append(rng.choice(SMALL))
            elif kind < 0.7:
                words.append(noun)
            elif kind < 0.82:
                words.append(noun + rng.choice(["s", ""]) + rng.choice(NOUNS))
            elif kind < 0.95:
                words.append(rng.choice(VERBS))
            else:
                words.append(str(rng.randint(1, 2500)))
        out.append(" ".join(words).capitalize() + rng.choice([".", ".", ".", "?", ";", ","]))
        length += len(out[-1]) + 1
    return " ".join(out)


def go_rates(binary, benchmarks, env):
    """MB/s of each of the benchmarks."""
    rates = {}
    for name, pattern in benchmarks.items():
        exact = "/".join(f"^{part}$" for part in pattern.split("/"))
        out = subprocess.run(
            [binary, "-test.run=^$", f"-test.bench={exact}", "-test.benchtime=300ms"],
            cwd=PACKAGE, env={**os.environ, **env, "GOMAXPROCS": "1"}, capture_output=True, text=True, check=True,
        ).stdout
        found = re.search(rf"^{pattern}\S*\s.*?([\d.]+) MB/s", out, re.M)
        if not found:
            raise SystemExit(f"no result of {pattern} in:\n{out}")
        rates[name] = float(found[1])
    return rates


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--multilingual", metavar="TOKENIZER.JSON")
    args = p.parse_args()

    texts = gzip.open(PACKAGE / "testdata/cranfield.txt.gz", "rt", newline="").read().split("\x1e")
    if args.multilingual:
        source = pathlib.Path(args.multilingual).read_text()
        rng = random.Random(1)
        texts = texts[:700] + [dutch(rng, len(t.encode())) for t in texts[:700]]
    else:
        source = gzip.open(PACKAGE / "testdata/tokenizer.json.gz", "rt").read()
    benchmarks = MULTILINGUAL if args.multilingual else BENCHMARKS
    reference = tokenizers.Tokenizer.from_str(source)
    reference.no_padding()
    reference.no_truncation()
    size = sum(len(t.encode()) for t in texts)
    ways = {
        "encode": lambda: [reference.encode(t) for t in texts],
        "encode_batch": lambda: reference.encode_batch(texts),
        "encode_batch_fast": lambda: reference.encode_batch_fast(texts),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        binary = str(pathlib.Path(folder) / "tokenize.test")
        subprocess.run(["go", "test", "-c", "-tags", "multilingual", "-o", binary, "."], cwd=PACKAGE, check=True)
        list_of_texts = pathlib.Path(folder) / "texts.json"
        list_of_texts.write_text(json.dumps(texts))
        env = {"RAGATE_BENCH_TEXTS": str(list_of_texts)} if args.multilingual else {}
        for _ in range(args.rounds):
            row = {}
            for name, run in ways.items():
                start = time.perf_counter()
                run()
                row[name] = size / (time.perf_counter() - start) / 1e6
            row.update(go_rates(binary, benchmarks, env))
            rows.append(row)

    best = {name: max(row[name] for row in rows) for name in rows[0]}
    kind = "English and Dutch passages" if args.multilingual else "passages"
    print(f"{len(texts)} {kind}, {size / 1e6:.2f} MB, tokenizers {tokenizers.__version__}, one thread, best of {args.rounds} rounds")
    for name, rate in best.items():
        print(f"  {'tokenizers' if name in ways else 'ragate':10} {name:18} {rate:8.1f} MB/s")
    for ours in benchmarks:
        for theirs in ways:
            each = [row[ours] / row[theirs] for row in rows]
            print(f"  {ours} : {theirs} = {best[ours] / best[theirs]:.0f}   (rounds {min(each):.0f} to {max(each):.0f}, median {statistics.median(each):.0f})")


if __name__ == "__main__":
    main()
