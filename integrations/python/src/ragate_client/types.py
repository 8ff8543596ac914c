"""Requests' parts and typed answers. Every answer keeps the JSON it came from in `raw`, for fields that have no name here yet.

The `parse` functions accept unknown members, so that a newer server works, and raise `MalformedAnswerError` when a member
that they need is missing or of another type.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
from array import array
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from .errors import MalformedAnswerError

ChunkID = Union[str, int, float]


@dataclass(frozen=True)
class Turn:
    """One earlier message of the conversation. role: `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True)
class Chunk:
    """A retrieved chunk. similarity: the retriever's own score, higher is nearer; the order of scoring under a budget.
    metadata: JSON values, which the policy's rules look at (`deprecated`, `updated_at`)."""

    text: str
    id: Optional[ChunkID] = None
    similarity: Optional[float] = None
    metadata: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class PolicyRef:
    """Which policy decided. fingerprint changes with anything that could change a decision."""

    name: str
    fingerprint: str


@dataclass(frozen=True)
class QueryDecision:
    """Whether this turn should retrieve.

    stage: what decided (`pattern`, `semantic`, …; `default` when nothing did). reason: a sentence.
    semantic, pattern: that stage's evidence, None where it did not run. timings_ms: milliseconds per stage.
    """

    needs_retrieval: bool
    stage: str
    reason: str
    chain: Tuple[str, ...] = ()
    pattern: Optional[Mapping[str, Any]] = None
    semantic: Optional[Mapping[str, Any]] = None
    policy: Optional[PolicyRef] = None
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def retrieval_bypassed(self) -> bool:
        return not self.needs_retrieval


@dataclass(frozen=True)
class GatedChunk:
    """One chunk's fate. index: its place in the request. relevance: 0…1, None where it was not scored, and then logit is None too.
    decision: `kept`, `fallback`, `dropped` or `unscored`. text is None for dropped ones and with return_text=False."""

    index: int
    decision: str
    reason: str
    relevance: Optional[float] = None
    logit: Optional[float] = None
    id: Optional[ChunkID] = None
    text: Optional[str] = None
    metadata: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class ChunkStats:
    """The numbers of a chunk decision. The relevances are over the returned, scored chunks and None when there are none.
    language_note says that the reranker is not for the query's language, so that the relevances mean little; None otherwise."""

    filtered: bool
    retrieved: int
    passed: int
    returned: int
    unscored: int
    truncated: int
    fallback_triggered: bool
    threshold: float
    query_type: str
    scored_by: str
    avg_relevance: Optional[float] = None
    min_relevance: Optional[float] = None
    max_relevance: Optional[float] = None
    query_language: Optional[str] = None
    language_note: Optional[str] = None


@dataclass(frozen=True)
class ChunkDecision:
    """Which chunks deserve the context, best first, and which do not and why (with explain=True)."""

    chunks: Tuple[GatedChunk, ...]
    dropped: Tuple[GatedChunk, ...]
    insufficient_context: bool
    stats: ChunkStats
    context: Optional[str] = None
    expanded_query: Optional[str] = None
    policy: Optional[PolicyRef] = None
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Embeddings:
    """One vector per text, in the order asked. truncated: places of texts that were cut to the model's length."""

    vectors: List[List[float]]
    model: str
    prompt_tokens: int
    truncated: Tuple[int, ...] = ()


@dataclass(frozen=True)
class Ranked:
    """index: the document's place in the request. score: 0…1, or the logit with raw_scores."""

    index: int
    score: float


@dataclass(frozen=True)
class Ranking:
    """Documents by relevance, best first."""

    results: Tuple[Ranked, ...]
    model: str
    prompt_tokens: int
    truncated: Tuple[int, ...] = ()


def parse_query(body: Any) -> QueryDecision:
    o = _Object(body, "answer")
    needs, bypassed = o.boolean("needs_retrieval"), o.boolean("retrieval_bypassed")
    if needs == bypassed:
        raise MalformedAnswerError(f"needs_retrieval and retrieval_bypassed are both {needs}")
    return QueryDecision(
        needs_retrieval=needs,
        stage=o.text("stage"),
        reason=o.text("reason"),
        chain=tuple(c for c in o.opt("chain", list, []) if isinstance(c, str)),
        pattern=o.opt("pattern", dict, None),
        semantic=o.opt("semantic", dict, None),
        policy=_policy(o),
        timings_ms=o.opt("timings_ms", dict, {}),
        raw=o.value,
    )


def parse_chunks(body: Any, sent: int) -> ChunkDecision:
    """sent: how many chunks the request had."""
    o = _Object(body, "answer")
    m = _Object(o.value.get("metadata"), "metadata")
    kept = tuple(_gated(c, "chunks", i, sent) for i, c in enumerate(o.list("chunks")))
    dropped = tuple(_gated(c, "dropped", i, sent) for i, c in enumerate(o.opt("dropped", list, [])))
    places = [c.index for c in kept + dropped]
    if len(set(places)) != len(places):
        raise MalformedAnswerError("two chunks of the answer have the same index")
    return ChunkDecision(
        chunks=kept,
        dropped=dropped,
        insufficient_context=o.boolean("insufficient_context"),
        context=o.opt("context", str, None),
        expanded_query=o.opt("expanded_query", str, None),
        policy=_policy(o),
        timings_ms=o.opt("timings_ms", dict, {}),
        raw=o.value,
        stats=ChunkStats(
            filtered=m.boolean("filtered"),
            retrieved=m.whole("chunks_retrieved"),
            passed=m.whole("chunks_passed"),
            returned=m.whole("chunks_returned"),
            unscored=m.whole("chunks_unscored"),
            truncated=m.opt("chunks_truncated", int, 0),
            fallback_triggered=m.boolean("fallback_triggered"),
            threshold=m.number("threshold"),
            query_type=m.opt("query_type", str, ""),
            scored_by=m.opt("scored_by", str, ""),
            avg_relevance=m.opt_number("avg_relevance"),
            min_relevance=m.opt_number("min_relevance"),
            max_relevance=m.opt_number("max_relevance"),
            query_language=m.opt("query_language", str, None),
            language_note=m.opt("language_note", str, None),
        ),
    )


def parse_embeddings(body: Any, sent: int) -> Embeddings:
    o = _Object(body, "answer")
    data = o.list("data")
    if len(data) != sent:
        raise MalformedAnswerError(f"{len(data)} embeddings for {sent} texts")
    vectors: List[Optional[List[float]]] = [None] * sent
    for i, item in enumerate(data):
        d = _Object(item, f"data[{i}]")
        at = d.place("index", sent)
        if vectors[at] is not None:
            raise MalformedAnswerError(f"two embeddings have the index {at}")
        vectors[at] = _vector(d.value.get("embedding"), at)
    done = [v for v in vectors if v is not None]
    if len({len(v) for v in done}) > 1:
        raise MalformedAnswerError("the embeddings have different lengths")
    return Embeddings(done, o.text("model"), _Object(o.value.get("usage"), "usage").whole("prompt_tokens"), _truncated(o))


def parse_ranking(body: Any, sent: int) -> Ranking:
    o = _Object(body, "answer")
    results = []
    for i, item in enumerate(o.list("results")):
        r = _Object(item, f"results[{i}]")
        results.append(Ranked(r.place("index", sent), r.number("relevance_score")))
    if len({r.index for r in results}) != len(results):
        raise MalformedAnswerError("two results have the same index")
    return Ranking(tuple(results), o.text("model"), _Object(o.value.get("usage"), "usage").whole("prompt_tokens"), _truncated(o))


def _gated(value: Any, where: str, i: int, sent: int) -> GatedChunk:
    c = _Object(value, f"{where}[{i}]")
    return GatedChunk(
        index=c.place("index", sent),
        decision=c.text("decision"),
        reason=c.text("reason"),
        relevance=c.opt_number("relevance"),
        logit=c.opt_number("logit"),
        id=c.value.get("id"),
        text=c.opt("text", str, None),
        metadata=c.opt("metadata", dict, None),
    )


def _policy(o: "_Object") -> Optional[PolicyRef]:
    p = o.opt("policy", dict, None)
    return None if p is None else PolicyRef(str(p.get("name", "")), str(p.get("fingerprint", "")))


def _truncated(o: "_Object") -> Tuple[int, ...]:
    return tuple(i for i in o.opt("truncated", list, []) if isinstance(i, int))


def _vector(value: Any, at: int) -> List[float]:
    """A vector as base64 of little-endian float32, or as a list of numbers."""
    if isinstance(value, str):
        try:
            data = base64.b64decode(value, validate=True)
            floats = array("f")
            floats.frombytes(data)
        except (binascii.Error, ValueError) as e:
            raise MalformedAnswerError(f"embedding {at} is no base64 of float32: {e}") from e
        if sys.byteorder == "big":
            floats.byteswap()
        return floats.tolist()
    if isinstance(value, list) and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in value):
        return [float(x) for x in value]
    raise MalformedAnswerError(f"embedding {at} is neither base64 nor a list of numbers")


class _Object:
    """A JSON object whose members are read by type."""

    def __init__(self, value: Any, where: str):
        if not isinstance(value, dict):
            raise MalformedAnswerError(f"{where} is {_name(value)}, not an object")
        self.value: Dict[str, Any] = value
        self.where = where

    def _bad(self, name: str, want: str) -> MalformedAnswerError:
        return MalformedAnswerError(f"`{name}` of {self.where} is {_name(self.value.get(name))}, not {want}")

    def boolean(self, name: str) -> bool:
        v = self.value.get(name)
        if not isinstance(v, bool):
            raise self._bad(name, "true or false")
        return v

    def text(self, name: str) -> str:
        v = self.value.get(name)
        if not isinstance(v, str):
            raise self._bad(name, "a text")
        return v

    def list(self, name: str) -> List[Any]:
        v = self.value.get(name)
        if not isinstance(v, list):
            raise self._bad(name, "a list")
        return v

    def whole(self, name: str) -> int:
        v = self.value.get(name)
        if isinstance(v, bool) or not isinstance(v, int):
            raise self._bad(name, "a whole number")
        return v

    def place(self, name: str, sent: int) -> int:
        v = self.whole(name)
        if not 0 <= v < sent:
            raise MalformedAnswerError(f"`{name}` of {self.where} is {v}, and {sent} were sent")
        return v

    def number(self, name: str) -> float:
        v = self.opt_number(name)
        if v is None:
            raise self._bad(name, "a number")
        return v

    def opt_number(self, name: str) -> Optional[float]:
        v = self.value.get(name)
        if v is None:
            return None
        if isinstance(v, bool) or not isinstance(v, (int, float)) or not math.isfinite(v):
            raise self._bad(name, "a finite number")
        return float(v)

    def opt(self, name: str, kind: type, default: Any) -> Any:
        v = self.value.get(name)
        if v is None:
            return default
        if not isinstance(v, kind):
            raise self._bad(name, f"of type {kind.__name__}")
        return v


def _name(v: Any) -> str:
    return "missing" if v is None else type(v).__name__
