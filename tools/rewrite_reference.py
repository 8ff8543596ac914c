#!/usr/bin/env python3
"""Says what a weight-only rewrite of a dynamically quantised ONNX model must compute.

An implementation independent of the Go one (models/graph): it follows the quantiser's pattern with the `onnx` package, dequantises every
weight to float32 with numpy, writes a graph of plain MatMuls over those float32 weights, and runs it with `onnxruntime` on its CPU
provider, one row per run. The token ids, the numbers that came out and the sha256 of every dequantised weight go into a small file that
the tests read.

    rewrite_reference.py make    MODEL.onnx TOKENIZER.json pairs|texts OUT.json.gz   writes the file of expected numbers
    rewrite_reference.py compare REWRITTEN.onnx REFERENCE.json.gz                   runs a rewritten model, prints the largest differences

`pairs` is for cross-encoders (one logit per pair), `texts` for encoders (mean-pooled vectors of length 1). `make` takes --fp32 FILE to
keep the float32 graph; both take --provider cpu|openvino and --precision f32|bf16. Needs onnx, onnxruntime (or onnxruntime-openvino),
tokenizers and numpy.
"""

import argparse
import base64
import gzip
import hashlib
import json
import random
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper
from tokenizers import Tokenizer

SEED = 20240607
ROWS = 50
MAX_TOKENS = 512

QUERIES = [
    "what is the capital of france",
    "how do vaccines train the immune system",
    "python list comprehension with condition",
    "average rainfall in the atacama desert",
    "who painted the night watch",
    "difference between tcp and udp",
    "why does bread rise",
    "symptoms of iron deficiency",
    "how far is the moon from earth",
    "refund policy for opened software",
    "what does HTTP status 429 mean?",
    "Wie funktioniert eine Wärmepumpe?",
    "naïve bayes vs logistic regression",
    "reset a forgotten router password",
    "zebra",
]

SENTENCES = [
    "Paris is the capital and most populous city of France, on a bend of the river Seine.",
    "Bananas are rich in potassium and ripen faster beside apples.",
    "A vaccine shows the immune system a harmless piece of a pathogen, so that memory cells recognise the real one later.",
    "Yeast eats sugar and gives off carbon dioxide, which the gluten of the dough holds as bubbles.",
    "The Atacama in northern Chile gets less than two millimetres of rain in an average year; some stations have recorded none at all.",
    "Rembrandt finished the large group portrait known as the Night Watch in 1642.",
    "TCP delivers a stream in order and sends lost segments again, while UDP sends single datagrams and leaves loss to the application.",
    "Tiredness, pale skin, brittle nails and shortness of breath may point to too little iron in the blood.",
    "On average the moon is 384,400 kilometres away, a little more than a light second.",
    "Opened software can be returned within fourteen days when the licence key has not been used.",
    "A client that receives 429 has sent too many requests; the Retry-After header says how long to wait.",
    "Eine Wärmepumpe entzieht der Umgebung Wärme und hebt sie mit Strom auf ein höheres Niveau.",
    "Naive Bayes assumes that features are independent given the class, which logistic regression does not.",
    "Hold the reset button for ten seconds until the lights blink, then open 192.168.0.1 and choose a new password.",
    "[x for x in items if x > 3] builds a list of the elements that pass the test.",
    "Zebras' stripes seem to confuse biting flies: striped coats get fewer landings than plain ones.",
    "The committee adjourned at 5:45 p.m. without a vote, and the minutes were e-mailed the next day.",
    "東京は日本の首都です。",
    "Prices rose 3.2 % in May, after 2.9 % in April — economists had expected 3.0 %.",
    "Laminar flow over a flat plate becomes turbulent where the Reynolds number passes about half a million.",
    "The function returns -1 if the key is absent; callers that ignore this read past the end of the buffer.",
    "Sourdough keeps longer than yeasted bread, since its acids slow down mould.",
    "No one answered the door, although the lights were on and music was playing upstairs.",
    "Copper conducts heat about eight times as well as steel, so cooks prefer it for sauces that burn easily.",
]


def dequantize(weight, scale, zero):
    """The float32 that ONNX's DequantizeLinear defines: (w - zero) * scale, one rounding."""
    zero = np.zeros((), weight.dtype) if zero is None else zero
    difference = weight.astype(np.int32) - zero.astype(np.int32)
    return (difference.astype(np.float32) * scale.astype(np.float32)).astype(np.float32)


def float32_graph(model):
    """Replaces every dynamically quantised product by MatMul over float32 weights. Returns the weights by their names in the file."""
    graph = model.graph
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    maker = {o: n for n in graph.node for o in n.output}
    readers = {}
    for n in graph.node:
        for i in n.input:
            readers.setdefault(i, []).append(n)
    weights, dead = {}, set()
    for n in [n for n in graph.node if n.op_type == "MatMulInteger"]:
        activation, weight, _, zero = list(n.input) + [""] * (4 - len(n.input))
        quantize = maker[activation]
        assert quantize.op_type == "DynamicQuantizeLinear", n.name
        (cast,) = readers[n.output[0]]
        (multiply,) = readers[cast.output[0]]
        assert (cast.op_type, multiply.op_type) == ("Cast", "Mul"), n.name
        (scales,) = [i for i in multiply.input if i != cast.output[0]]
        (scale,) = [i for i in maker[scales].input if i != quantize.output[1]]
        weights[weight] = dequantize(constants[weight], constants[scale], constants.get(zero))
        dead |= {n.name, cast.name, maker[scales].name, quantize.name}
        multiply.CopyFrom(helper.make_node("MatMul", [quantize.input[0], weight + "/float32"], list(multiply.output), name=multiply.name))
    nodes = [n for n in graph.node if n.name not in dead]
    del graph.node[:]
    graph.node.extend(nodes)
    used = {i for n in nodes for i in n.input}
    kept = [t for t in graph.initializer if t.name in used and t.name not in weights]
    kept += [numpy_helper.from_array(w, name + "/float32") for name, w in weights.items()]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return weights


def rows(kind, tokenizer):
    """Token ids and type ids of the seeded pairs or texts, from a few tokens to the limit."""
    rnd = random.Random(SEED)
    out = []
    for i in range(ROWS):
        document = " ".join(rnd.choice(SENTENCES) for _ in range([1, 1, 2, 3, 5, 9, 24][i % 7]))
        query = rnd.choice(QUERIES)
        encoding = tokenizer.encode(query, document) if kind == "pairs" else tokenizer.encode(query if i % 5 == 0 else document)
        out.append((encoding.ids, encoding.type_ids))
    return out


def session(model, provider, precision):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if provider == "cpu":
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    config = {"CPU": {"INFERENCE_PRECISION_HINT": precision, "NUM_STREAMS": "1"}}
    s = ort.InferenceSession(model, options, providers=[("OpenVINOExecutionProvider", {"device_type": "CPU", "load_config": json.dumps(config)})])
    assert s.get_providers()[0] == "OpenVINOExecutionProvider", "the OpenVINO provider did not take the session"
    return s


def run(s, kind, ids, type_ids):
    feed = {"input_ids": ids, "token_type_ids": type_ids, "attention_mask": [1] * len(ids)}
    feed = {i.name: np.array([feed[i.name]], np.int64) for i in s.get_inputs()}
    first = s.run([s.get_outputs()[0].name], feed)[0]
    if kind == "pairs":
        return first.reshape(-1).astype(np.float32)
    mean = first[0].astype(np.float64).mean(axis=0)
    return (mean / np.linalg.norm(mean)).astype(np.float32)


def make(args):
    model = onnx.load(args.model)
    with open(args.model, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    weights = float32_graph(model)
    data = model.SerializeToString()
    if args.fp32:
        with open(args.fp32, "wb") as f:
            f.write(data)
    s = session(data, args.provider, args.precision)
    tokenizer = Tokenizer.from_file(args.tokenizer)
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS, strategy="longest_first")
    inputs = rows(args.kind, tokenizer)
    expected = np.stack([run(s, args.kind, *r) for r in inputs])
    reference = {
        "note": "made by tools/rewrite_reference.py; values are float32, little-endian, base64, one row per input",
        "model_sha256": digest,
        "kind": args.kind,
        "seed": SEED,
        "inputs": [{"ids": ids, "type_ids": types} for ids, types in inputs],
        "dim": int(expected.shape[1]),
        "values": base64.b64encode(expected.astype("<f4").tobytes()).decode(),
        "weights": [
            {"name": name, "shape": list(w.shape), "sha256": hashlib.sha256(w.astype("<f4").tobytes()).hexdigest()} for name, w in weights.items()
        ],
    }
    with open(args.out, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as f:
        f.write(json.dumps(reference, separators=(",", ":")).encode())
    lengths = sorted(len(ids) for ids, _ in inputs)
    print(f"{len(inputs)} {args.kind} of {lengths[0]} to {lengths[-1]} tokens, {len(weights)} weights, seed {SEED}")


def compare(args):
    with gzip.open(args.reference) as f:
        reference = json.load(f)
    expected = np.frombuffer(base64.b64decode(reference["values"]), "<f4").reshape(-1, reference["dim"])
    s = session(args.model, args.provider, args.precision)
    got = np.stack([run(s, reference["kind"], r["ids"], r["type_ids"]) for r in reference["inputs"]])
    line = f"{len(got)} rows, {args.provider} {args.precision}: largest difference {np.abs(got - expected).max():.7f}"
    if reference["kind"] == "texts":
        line += f", smallest cosine {(got.astype(np.float64) * expected).sum(axis=1).min():.8f}"
    print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    c = commands.add_parser("make")
    c.add_argument("model")
    c.add_argument("tokenizer")
    c.add_argument("kind", choices=["pairs", "texts"])
    c.add_argument("out")
    c.add_argument("--fp32", help="also write the float32 graph to this file")
    c.set_defaults(do=make)
    d = commands.add_parser("compare")
    d.add_argument("model")
    d.add_argument("reference")
    d.set_defaults(do=compare)
    for p in (c, d):
        p.add_argument("--provider", choices=["cpu", "openvino"], default="cpu")
        p.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    sys.exit(main())
