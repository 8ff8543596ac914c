#!/usr/bin/env python3
"""Embeds texts for the tests and the table of the query gate, computed without any of the server's code.

    gate_vectors.py --embedder FOLDER --out FILE [--precision fp32|int8] [--store float32|int8] [--reuse FILE] TEXTS...

FOLDER holds model.onnx and tokenizer.json. TEXTS are files: `.jsonl` with a "text" in every row (a data set), or `.yaml` (the references
of gates/semantic). Every text is embedded once as the gate does it: "query: " in front, mean over all tokens, scaled to length 1.

fp32 runs the graph with its weights multiplied out (as the server does by default, less its rounding), int8 the graph as it is supplied,
one text per run. --reuse takes the vectors of texts that an earlier output of the same model holds. A special token more or less, or a
graph without token types, is the tokenizer's and the graph's own affair: BERT and XLM-R models go alike. The file that comes out holds,
little-endian:

    "RGV1", store (uint8: 0 float32, 1 int8), 3 zero bytes, width (uint32), count (uint32), and per text
    the first 8 bytes of its sha256, then width float32, or a float32 scale and width int8

A name that ends in .gz is compressed.

For the committed fixtures, the first of multilingual-e5-small, the second of e5-small-v2:
    gate_vectors.py --embedder FOLDER --store int8 --out gates/semantic/testdata/vectors.bin.gz gates/semantic/references.yaml \\
        gates/semantic/testdata/{eval,tune_nl,hard,follow_ups}.jsonl
    gate_vectors.py --embedder FOLDER --store int8 --out gates/semantic/testdata/vectors_en.bin.gz gates/semantic/references.yaml

Needs what requirements.txt lists, PyYAML for `.yaml`, and Python 3.9 or later.
"""

import argparse
import gzip
import hashlib
import json
import pathlib
import struct

import numpy as np
import onnx
import onnxruntime
from tokenizers import Tokenizer

from rewrite_reference import float32_graph

BATCH = 16


def texts_of(path):
    if path.suffix == ".jsonl":
        with open(path, encoding="utf-8") as f:
            return [json.loads(line)["text"] for line in f if line.strip()]
    if path.suffix in (".yaml", ".yml"):
        import yaml

        class Plain(yaml.BaseLoader):  # every scalar is a text, as the gate reads it
            pass

        with open(path, encoding="utf-8") as f:
            categories = yaml.load(f, Plain)["categories"]
        return [t for c in categories for lang in sorted(c["references"]) for t in c["references"][lang]]
    raise SystemExit(f"{path}: neither .jsonl nor .yaml")


def embed(folder, texts, precision):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model = str(folder / "model.onnx")
    if precision == "fp32":
        graph = onnx.load(model)
        float32_graph(graph)
        model = graph.SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    encodings = [tokenizer.encode("query: " + t).ids for t in texts]
    order = sorted(range(len(texts)), key=lambda i: len(encodings[i]))
    batch = BATCH if precision == "fp32" else 1  # the int8 graph takes its scale from the whole batch
    out = None
    for at in range(0, len(order), batch):
        rows = order[at:at + batch]
        width = max(len(encodings[i]) for i in rows)
        ids = np.zeros((len(rows), width), np.int64)
        mask = np.zeros_like(ids)
        for r, i in enumerate(rows):
            ids[r, :len(encodings[i])] = encodings[i]
            mask[r, :len(encodings[i])] = 1
        feed = {}
        for x in session.get_inputs():
            feed[x.name] = ids if "input_ids" in x.name else mask if "mask" in x.name else np.zeros_like(ids)
        hidden = session.run(None, feed)[0]
        v = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        v /= np.linalg.norm(v, axis=1, keepdims=True)
        if out is None:
            out = np.zeros((len(texts), v.shape[1]), np.float32)
        out[rows] = v
    return out


def read(path):
    """The vectors of an earlier output, by the 8 bytes of their text's hash."""
    data = path.read_bytes()
    if data[:4] != b"RGV1" or data[4] != 0:
        raise SystemExit(f"{path}: --reuse takes a file of this program with --store float32")
    width, count = struct.unpack_from("<II", data, 8)
    rows = np.frombuffer(data, np.dtype([("digest", "S8"), ("v", "<f4", (width,))]), count, 16)
    return {data[16 + i * (8 + 4 * width):][:8]: rows["v"][i] for i in range(count)}


def digest_of(text):
    return hashlib.sha256(text.encode()).digest()[:8]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--embedder", type=pathlib.Path, required=True)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--precision", choices=["fp32", "int8"], default="fp32")
    p.add_argument("--store", choices=["float32", "int8"], default="float32")
    p.add_argument("--reuse", type=pathlib.Path)
    p.add_argument("texts", type=pathlib.Path, nargs="+")
    a = p.parse_args()

    texts = list(dict.fromkeys(t for path in a.texts for t in texts_of(path)))
    known = read(a.reuse) if a.reuse else {}
    new = [t for t in texts if digest_of(t) not in known]
    if new:
        known.update(zip(map(digest_of, new), embed(a.embedder, new, a.precision)))
    rows = [(d, known[d]) for d in sorted(map(digest_of, texts))]
    packed = a.out.suffix == ".gz"
    with gzip.GzipFile(a.out, "wb", mtime=0) if packed else open(a.out, "wb") as f:
        f.write(b"RGV1" + struct.pack("<B3xII", a.store == "int8", len(rows[0][1]), len(rows)))
        for digest, v in rows:
            f.write(digest)
            if a.store == "int8":
                scale = np.float32(np.abs(v).max() / 127)
                f.write(struct.pack("<f", scale) + np.rint(v / scale).astype(np.int8).tobytes())
            else:
                f.write(v.astype("<f4").tobytes())
    print(f"{len(rows)} texts of {len(rows[0][1])} elements, {len(new)} of them new, in {a.out}")


if __name__ == "__main__":
    main()
