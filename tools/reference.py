#!/usr/bin/env python3
"""Says what the server must answer: vectors and logits of the default models, computed without any of the server's code.

    reference.py inputs --cranfield FOLDER OUT.json.gz
        makes the list of texts and pairs that internal/e2e sends; FOLDER holds corpus.jsonl, queries.jsonl and
        qrels.tsv. The list is committed.
    reference.py answers --embedder FOLDER --reranker FOLDER --inputs FILE.json[.gz] --out FILE.json
        computes the answers. A folder holds model.onnx and tokenizer.json.

Each input runs alone and unpadded on ONNX Runtime's CPU provider, twice: `int8` is the graph as it is supplied, dynamically quantised;
`fp32` the same graph with its weights multiplied out to float32 (rewrite_reference.float32_graph). Vectors are the mean over all tokens,
scaled to length 1. Texts are cut to 512 tokens, pairs longest first; what tokenizer.json says of padding and truncation is switched off.

Inputs:  {"seed", "texts": [text], "pairs": [{"query", "documents": [text]}]}
Answers: {"versions", "texts": {"tokens": [n], "width", "int8", "fp32"}, "pairs": the same, in the order of the inputs}; the values are
little-endian float32 in base64, one row of `width` per input.

Needs what requirements.txt lists, and Python 3.9 or later.
"""

import argparse
import base64
import gzip
import json
import os
import pathlib
import random
import sys

import numpy as np
import onnx
import onnxruntime
import tokenizers
from tokenizers import Tokenizer

from rewrite_reference import MAX_TOKENS, float32_graph, run, session

SEED = 20240611
TEXTS = 200
QUERIES, DOCUMENTS = 25, 8  # 200 pairs
WORDS = 560  # of the longest ordinary text: beyond 600 tokens

# One of each kind that goes wrong first: nothing, blanks, other scripts, sequences of code points, special tokens typed by users,
# words that no vocabulary has, and lengths around the limit (each "a " is one token, and two specials join).
ODDITIES = [
    "",
    " ",
    "\t\r\n",
    "\u3000\u00a0",
    "a",
    ".",
    "!?!?…—–",
    "👍",
    "👨‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👩🏽‍🚀 astronaut",
    "東京は日本の首都です。",
    "今天天气很好，我们去公园散步吧。",
    "서울은 대한민국의 수도이다",
    "Москва — столица России, а Волга впадает в Каспийское море.",
    "القاهرة هي عاصمة مصر وأكبر مدنها",
    "ירושלים היא עיר עתיקה מאוד",
    "नई दिल्ली भारत की राजधानी है",
    "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย",
    "Straße, ŒUVRE, İstanbul, Ⱥ, ﬁne, Å, ñandú, Ελλάδα",
    "e\u0301tude na\u0308ive \u0301 alone",
    "zero\x00byte, bell\x07, soft\u00adhyphen, zero\u200bwidth, \ufeffmark, \ufffd",
    "[CLS] typed [SEP] specials [MASK] [UNK] [PAD]",
    "x" * 300,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "https://example.org/a/b?c=d&e=%20f#g user.name+tag@example.org",
    "if (a[i] >= 0x1F && !b) { return f(\"x\\n\"); } // 3.14159e-10",
    "1234567890 " * 12,
    "a " * 13,
    "a " * 14,
    "a " * 15,
    "a " * 509,
    "a " * 510,
    "a " * 511,
    "東" * 600,
    "\U0001f600" * 700,
    "no space " + "between" * 90,
    " " * 5000 + "far in" + "\n" * 5000,
]

ODD_QUERIES = ["", "Wie funktioniert eine Wärmepumpe?", "日本の首都はどこですか 🗼"]


def inputs(args):
    rnd = random.Random(SEED)
    folder = pathlib.Path(args.cranfield)
    read = lambda name: [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
    corpus = {d["_id"]: d["text"].split() for d in read("corpus.jsonl")}
    words = [w for text in corpus.values() for w in text]
    relevant = {}
    for line in (folder / "qrels.tsv").read_text("utf-8").splitlines()[1:]:
        query, document, grade = line.split("\t")
        if int(grade) > 0 and corpus.get(document):
            relevant.setdefault(query, []).append(corpus[document])

    def passage(source=None):
        # Somewhat more passages between 1 and 2 words than between 256 and 512: every length matters, and short ones cost little.
        n = int(WORDS ** rnd.random() ** 1.4)
        start = rnd.randrange(len(words) - n) if source is None else 0
        return " ".join((source or words)[start : start + n])

    texts = ODDITIES + [passage() for _ in range(TEXTS - len(ODDITIES))]
    rnd.shuffle(texts)
    questions = [q for q in read("queries.jsonl") if len(relevant.get(q["_id"], [])) >= DOCUMENTS // 2]
    queries = [(q["text"], relevant[q["_id"]]) for q in rnd.sample(questions, QUERIES - len(ODD_QUERIES) - 2)]
    queries += [(q, []) for q in ODD_QUERIES]
    queries += [(" ".join(words[n : n + n]), []) for n in (150, 700)]  # two long sides; the second is beyond the limit by itself
    odd = ODDITIES[:]
    rnd.shuffle(odd)
    pairs = []
    for query, answering in queries:
        documents = [passage(d) for d in rnd.sample(answering, min(len(answering), DOCUMENTS // 2))]
        documents += [passage() for _ in range(DOCUMENTS - 1 - len(documents))] + [odd.pop()]
        rnd.shuffle(documents)
        pairs.append({"query": query, "documents": documents})
    out = json.dumps({"seed": SEED, "texts": texts, "pairs": pairs}, ensure_ascii=False, indent=0)
    with open(args.out, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as f:
        f.write(out.encode("utf-8"))
    print(f"{len(texts)} texts, {sum(len(p['documents']) for p in pairs)} pairs, seed {SEED}")


def compute(folder, kind, items):
    """Runs every item through both forms of one model. kind is `texts` or `pairs`, an item the arguments of Tokenizer.encode."""
    folder = pathlib.Path(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS, strategy="longest_first")
    encodings = [tokenizer.encode(*item) for item in items]
    model = onnx.load(str(folder / "model.onnx"))
    as_supplied = model.SerializeToString()
    if not float32_graph(model):
        sys.exit(f"{folder}: the graph has no dynamically quantised product: fp32 would compare it with itself")
    out = {"tokens": [len(e.ids) for e in encodings]}
    for name, graph in (("int8", as_supplied), ("fp32", model.SerializeToString())):
        s = session(graph, "cpu", "f32")
        rows = np.stack([run(s, kind, e.ids, e.type_ids) for e in encodings])
        if not np.isfinite(rows).all():
            sys.exit(f"{folder}: {name} gives values that are not finite")
        out["width"] = rows.shape[1]
        out[name] = base64.b64encode(rows.astype("<f4").tobytes()).decode()
    return out


def answers(args):
    opener = gzip.open if args.inputs.endswith(".gz") else open
    with opener(args.inputs, "rt", encoding="utf-8") as f:
        given = json.load(f)
    out = {
        "versions": {m.__name__: m.__version__ for m in (onnxruntime, onnx, tokenizers, np)},
        "texts": compute(args.embedder, "texts", [(t,) for t in given["texts"]]),
        "pairs": compute(args.reranker, "pairs", [(p["query"], d) for p in given["pairs"] for d in p["documents"]]),
    }
    part = args.out + ".part"
    with open(part, "w", encoding="utf-8") as f:
        json.dump(out, f)
    os.replace(part, args.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    c = commands.add_parser("inputs")
    c.add_argument("--cranfield", required=True)
    c.add_argument("out")
    c.set_defaults(do=inputs)
    c = commands.add_parser("answers")
    c.add_argument("--embedder", required=True)
    c.add_argument("--reranker", required=True)
    c.add_argument("--inputs", required=True)
    c.add_argument("--out", required=True)
    c.set_defaults(do=answers)
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
