"""What the answers must be: the reference's values (../testdata), and the server's own answers without a client."""

from __future__ import annotations

import base64
import importlib.util
import json
import math
from pathlib import Path
from typing import Any, Iterable, List, Sequence

import numpy as np

from servers import EMBEDDER, RERANKER, Server

TESTDATA = Path(__file__).resolve().parent.parent / "testdata"
_spec = importlib.util.spec_from_file_location("make_inputs", TESTDATA / "make_inputs.py")
_inputs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_inputs)
TEXTS, PREFIXES, QUERY, DOCUMENTS = _inputs.TEXTS, _inputs.PREFIXES, _inputs.QUERY, _inputs.DOCUMENTS
LONG = TEXTS.index(max(TEXTS, key=len))

# How far two answers of one server to one text may be apart, whoever shared its batches.
SAME_COSINE, SAME_LOGIT = 0.99999, 0.005
# How far the server may be from the reference: as computed in the same precision for int8, in float32 otherwise.
NEAR_COSINE = {"fp32": 1 - 1e-6, "int8": 1 - 1e-5, "bf16": 0.9997}
NEAR_LOGIT = {"fp32": 1e-3, "int8": 1e-3, "bf16": 0.15}

_answers = json.loads((TESTDATA / "answers.json").read_text("utf-8"))
assert json.loads((TESTDATA / "inputs.json").read_text("utf-8")) == {
    "texts": [p + t for p in PREFIXES for t in TEXTS], "pairs": [{"query": QUERY, "documents": DOCUMENTS}]
}, "testdata/inputs.json is not what make_inputs.py writes"


def _reference(kind: str, precision: str) -> np.ndarray:
    """Rows of one kind (`texts` or `pairs`) in the precision to compare with."""
    raw = base64.b64decode(_answers[kind]["int8" if precision == "int8" else "fp32"])
    return np.frombuffer(raw, "<f4").reshape(-1, _answers[kind]["width"])


TOKENS = {p: _answers["texts"]["tokens"][i * len(TEXTS) : (i + 1) * len(TEXTS)] for i, p in enumerate(PREFIXES)}
PAIR_TOKENS = _answers["pairs"]["tokens"]


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def assert_vectors(server: Server, got: Any, texts: Sequence[str] = TEXTS, prefix: str = "", dimensions: int = 384, unit: bool = True) -> None:
    """got must be the vectors of texts with prefix: against /embed, and against the reference where it has the texts.

    unit False: vectors as the model makes them, of any length.
    """
    got = np.asarray(got, np.float64)
    assert got.shape == (len(texts), dimensions)
    lengths = np.linalg.norm(got, axis=1)
    if unit:
        assert np.abs(lengths - 1).max() < 1e-5
    body = {"inputs": list(texts), "dimensions": dimensions, "normalize": unit}
    if prefix:
        body["prompt_name"] = prefix.split(":")[0]
    plain = np.asarray(server.post("/embed", body))
    cosines = _cosines(got, plain)
    assert cosines.min() > SAME_COSINE, f"not /embed's: cosines {cosines}"
    assert np.abs(lengths / np.linalg.norm(plain, axis=1) - 1).max() < 1e-2
    if not all(t in TEXTS for t in texts) or dimensions != 384:
        return
    precision = server.precision[EMBEDDER]
    rows = _reference("texts", precision)[[PREFIXES.index(prefix) * len(TEXTS) + TEXTS.index(t) for t in texts]]
    cosines = _cosines(got, rows)
    assert cosines.min() > NEAR_COSINE[precision], f"not the reference's: cosines {cosines}"


def logit(score: float) -> float:
    return math.log(score) - math.log1p(-score)


def assert_ranking(server: Server, got: Iterable[Any], top: int = len(DOCUMENTS)) -> None:
    """got holds (index, score) of QUERY and DOCUMENTS, best first: against /rerank and the reference. Scores are sigmoids."""
    got = [(int(i), float(s)) for i, s in got]
    plain = server.post("/rerank", {"query": QUERY, "texts": DOCUMENTS})
    assert [i for i, _ in got] == [r["index"] for r in plain][:top]
    for (index, score), r in zip(got, plain):
        assert abs(logit(score) - logit(r["score"])) < SAME_LOGIT, f"not /rerank's: {index} {score} {r['score']}"
    precision = server.precision[RERANKER]
    rows = _reference("pairs", precision)[:, 0]
    for index, score in got:
        assert abs(logit(score) - rows[index]) < NEAR_LOGIT[precision], f"not the reference's: {index} {logit(score)} {rows[index]}"


def by_text(ranked: Iterable[Any]) -> List[Any]:
    """(index, score) from (text, score): of equal texts the first comes first, as equal scores do."""
    free = list(range(len(DOCUMENTS)))
    out = []
    for text, score in ranked:
        index = next(i for i in free if DOCUMENTS[i] == text)
        free.remove(index)
        out.append((index, score))
    return out
