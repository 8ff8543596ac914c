"""The blocking and the asyncio client.

What a request is and how its answer is read stands once, in the `_…_call` functions; the two clients differ in how they send.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import date
from types import TracebackType
from typing import Any, Callable, Dict, Generic, List, Mapping, Optional, Sequence, Type, TypeVar, Union

import httpx

from .errors import MalformedAnswerError, RagateError, StatusError, TimedOutError, UnreachableError
from .types import (
    Chunk,
    ChunkDecision,
    Embeddings,
    QueryDecision,
    Ranking,
    Turn,
    parse_chunks,
    parse_embeddings,
    parse_query,
    parse_ranking,
)

T = TypeVar("T")

DEFAULT_BASE_URL = "http://127.0.0.1:8080"

DEFAULT_GATE_TIMEOUT = 2.0
"""Seconds for a gate's answer. The server keeps its own budget (100 ms unless it is asked otherwise), so that an answer this late
means that the server or the way to it is in trouble."""

DEFAULT_TIMEOUT = 30.0
"""Seconds for embeddings and reranking, which may queue behind other bulk work."""

ChunkLike = Union[str, Chunk, Mapping[str, Any]]
TurnLike = Union[Turn, Mapping[str, Any]]


def as_json_metadata(metadata: Mapping[str, Any]) -> Dict[str, Any]:
    """The part of metadata that JSON can hold, for chunks of frameworks that allow any object there.

    Dates become ISO 8601 texts, which the server's age rules read. Members that have no JSON form are left out.
    """
    out = {}
    for key, value in metadata.items():
        v = _jsonable(value)
        if isinstance(key, str) and v is not _NOT_JSON:
            out[key] = v
    return out


_NOT_JSON = object()


def _jsonable(value: Any, depth: int = 0) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_JSON
    if isinstance(value, date):
        return value.isoformat()
    if depth >= 8:  # far below the server's own bound on nesting, and an end for structures that hold themselves
        return _NOT_JSON
    if isinstance(value, Mapping):
        members = {k: _jsonable(v, depth + 1) for k, v in value.items() if isinstance(k, str)}
        return {k: v for k, v in members.items() if v is not _NOT_JSON}
    if isinstance(value, (list, tuple)):
        items = [_jsonable(v, depth + 1) for v in value]
        return [v for v in items if v is not _NOT_JSON]
    return _NOT_JSON


@dataclass(frozen=True)
class _Call(Generic[T]):
    path: str
    body: Dict[str, Any]
    parse: Callable[[Any], T]
    gate: bool = False


def _present(**members: Any) -> Dict[str, Any]:
    """The members that are given: absent, not null, is what the server documents for a default."""
    return {k: v for k, v in members.items() if v is not None}


def _turn_body(t: TurnLike) -> Dict[str, Any]:
    """What the gate takes of a turn: chat messages carry more ("name", "tool_calls"), which it refuses."""
    if isinstance(t, Turn):
        return {"role": t.role, "content": t.content}
    return {k: t[k] for k in ("role", "content") if k in t}


def _query_call(
    query: str,
    history: Optional[Sequence[TurnLike]],
    policy: Optional[str],
    budget_ms: Optional[int],
) -> _Call[QueryDecision]:
    turns = [_turn_body(t) for t in history or ()]
    return _Call(
        "/v1/gate/query",
        _present(query=query, history=turns or None, policy=policy, budget_ms=budget_ms),
        parse_query,
        gate=True,
    )


def _chunk_body(c: ChunkLike) -> Dict[str, Any]:
    if isinstance(c, str):
        return {"text": c}
    if isinstance(c, Chunk):
        return _present(text=c.text, id=c.id, similarity=c.similarity, metadata=c.metadata)
    return dict(c)


def _chunks_call(
    query: str,
    chunks: Sequence[ChunkLike],
    settings: Dict[str, Any],
) -> _Call[ChunkDecision]:
    return _Call(
        "/v1/gate/chunks",
        {"query": query, "chunks": [_chunk_body(c) for c in chunks], **_present(**settings)},
        lambda body: parse_chunks(body, len(chunks)),
        gate=True,
    )


def _embed_call(
    texts: Sequence[str], input_type: Optional[str], model: Optional[str], dimensions: Optional[int]
) -> _Call[Embeddings]:
    if isinstance(texts, str):
        raise TypeError("texts is a str: give a list of texts")
    return _Call(
        "/v1/embeddings",
        {
            "input": list(texts),
            "encoding_format": "base64",  # a third of the bytes of decimal numbers, and exact
            **_present(input_type=input_type, model=model, dimensions=dimensions),
        },
        lambda body: parse_embeddings(body, len(texts)),
    )


def _rerank_call(
    query: str,
    documents: Sequence[str],
    top_n: Optional[int],
    model: Optional[str],
    raw_scores: Optional[bool],
    max_tokens_per_doc: Optional[int],
) -> _Call[Ranking]:
    if isinstance(documents, str):
        raise TypeError("documents is a str: give a list of texts")
    return _Call(
        "/v1/rerank",
        {
            "query": query,
            "documents": list(documents),
            **_present(top_n=top_n, model=model, raw_scores=raw_scores, max_tokens_per_doc=max_tokens_per_doc),
        },
        lambda body: parse_ranking(body, len(documents)),
    )


def _read(call: _Call[T], response: httpx.Response) -> T:
    if response.status_code != 200:
        raise _status_error(response)
    try:
        body = response.json()
    except (ValueError, RecursionError) as e:
        raise MalformedAnswerError(f"{call.path} answered no JSON: {_clip(response.text)}") from e
    try:
        return call.parse(body)
    except MalformedAnswerError as e:
        raise MalformedAnswerError(f"{call.path} answered what this client cannot read: {e}") from e


def _status_error(response: httpx.Response) -> StatusError:
    """Reads the server's own error body, and takes whatever else there is as the message: a proxy in between has its own pages."""
    said: Dict[str, Optional[str]] = {}
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict):
        error = body.get("error")
        inner = error if isinstance(error, dict) else body
        said = {k: inner[k] for k in ("message", "code", "param") if isinstance(inner.get(k), str)}
    retry = response.headers.get("Retry-After", "")
    return StatusError(
        response.status_code,
        said.get("message") or _clip(response.text) or response.reason_phrase,
        said.get("code"),
        said.get("param"),
        response.headers.get("X-Request-Id"),
        float(retry) if retry.isascii() and retry.isdigit() else None,
    )


def _clip(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"


def _wrap(call: _Call[Any], base_url: str, e: httpx.HTTPError) -> RagateError:
    what = f"{call.path} at {base_url}: {type(e).__name__}" + (f": {e}" if str(e) else "")
    if isinstance(e, httpx.TimeoutException):
        return TimedOutError(what)
    if isinstance(e, (httpx.DecodingError, httpx.TooManyRedirects)):
        return MalformedAnswerError(what)
    return UnreachableError(what)


def _content(body: Dict[str, Any]) -> bytes:
    """JSON in UTF-8. Half a surrogate pair, which UTF-8 has no bytes for, stays escaped: the server reads it as U+FFFD."""
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()


def _headers(api_key: Optional[str]) -> Dict[str, str]:
    h = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "ragate-client"}
    if api_key:
        h["Authorization"] = f"Bearer {api_key}"
    return h


class _Base:
    def __init__(self, base_url: str, api_key: Optional[str], timeout: float, gate_timeout: float):
        if timeout <= 0 or gate_timeout <= 0:
            raise ValueError(f"timeout {timeout} and gate_timeout {gate_timeout} are seconds and must be over 0")
        self.base_url = base_url.rstrip("/")
        self._headers = _headers(api_key)
        self._timeout = timeout
        self._gate_timeout = gate_timeout

    def _request(self, call: _Call[Any]) -> Dict[str, Any]:
        return {
            "url": self.base_url + call.path,
            "content": _content(call.body),
            "headers": self._headers,
            # A budget that the caller asked for comes on top: the gate may use all of it.
            "timeout": self._gate_timeout + call.body.get("budget_ms", 0) / 1000 if call.gate else self._timeout,
        }


class Client(_Base):
    """A blocking client. Safe to share between threads; keep one and close it, or use it in a `with` block.

    api_key: sent as a bearer token. timeout, gate_timeout: seconds that each step of a call may take (connecting, sending, each
    wait for bytes). http: an httpx client of your own (proxies, certificates, transports), which is then yours to close.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        *,
        api_key: Optional[str] = None,
        timeout: float = DEFAULT_TIMEOUT,
        gate_timeout: float = DEFAULT_GATE_TIMEOUT,
        http: Optional[httpx.Client] = None,
    ):
        super().__init__(base_url, api_key, timeout, gate_timeout)
        self._owned = http is None
        self._http = http or httpx.Client()

    def gate_query(
        self,
        query: str,
        history: Optional[Sequence[TurnLike]] = None,
        *,
        policy: Optional[str] = None,
        budget_ms: Optional[int] = None,
    ) -> QueryDecision:
        """Should this turn retrieve at all? history: earlier messages, oldest first, without the query itself."""
        return self._do(_query_call(query, history, policy, budget_ms))

    def gate_chunks(
        self,
        query: str,
        chunks: Sequence[ChunkLike],
        *,
        threshold: Optional[float] = None,
        min_chunks: Optional[int] = None,
        max_chunks: Optional[int] = None,
        mode: Optional[str] = None,
        fallback: Optional[str] = None,
        long_chunk: Optional[str] = None,
        max_context_tokens: Optional[int] = None,
        return_context: Optional[bool] = None,
        return_text: Optional[bool] = None,
        explain: Optional[bool] = None,
        policy: Optional[str] = None,
        budget_ms: Optional[int] = None,
    ) -> ChunkDecision:
        """Which of the retrieved chunks deserve the context? None leaves a setting to the server's policy."""
        settings = {k: v for k, v in locals().items() if k not in ("self", "query", "chunks")}
        return self._do(_chunks_call(query, chunks, settings))

    def embed(
        self,
        texts: Sequence[str],
        *,
        input_type: Optional[str] = None,
        model: Optional[str] = None,
        dimensions: Optional[int] = None,
    ) -> Embeddings:
        """One vector per text. input_type: `query` or `document` puts the model's prefix in front of each."""
        return self._do(_embed_call(texts, input_type, model, dimensions))

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: Optional[int] = None,
        model: Optional[str] = None,
        raw_scores: Optional[bool] = None,
        max_tokens_per_doc: Optional[int] = None,
    ) -> Ranking:
        """The documents by relevance to the query, best first."""
        return self._do(_rerank_call(query, documents, top_n, model, raw_scores, max_tokens_per_doc))

    def close(self) -> None:
        if self._owned:
            self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, t: Optional[Type[BaseException]], e: Optional[BaseException], tb: Optional[TracebackType]) -> None:
        self.close()

    def _do(self, call: _Call[T]) -> T:
        try:
            response = self._http.post(**self._request(call))
        except httpx.HTTPError as e:
            raise _wrap(call, self.base_url, e) from e
        return _read(call, response)


class AsyncClient(_Base):
    """The asyncio client, with `Client`'s methods. It belongs to the event loop that first uses it."""

    def __init__(
        self,
        base_url: str = DEFAULT_BASE_URL,
        *,
        api_key: Optional[str] = None,
        timeout: float = DEFAULT_TIMEOUT,
        gate_timeout: float = DEFAULT_GATE_TIMEOUT,
        http: Optional[httpx.AsyncClient] = None,
    ):
        super().__init__(base_url, api_key, timeout, gate_timeout)
        self._owned = http is None
        self._http = http or httpx.AsyncClient()

    async def gate_query(
        self,
        query: str,
        history: Optional[Sequence[TurnLike]] = None,
        *,
        policy: Optional[str] = None,
        budget_ms: Optional[int] = None,
    ) -> QueryDecision:
        """As `Client.gate_query`."""
        return await self._do(_query_call(query, history, policy, budget_ms))

    async def gate_chunks(
        self,
        query: str,
        chunks: Sequence[ChunkLike],
        *,
        threshold: Optional[float] = None,
        min_chunks: Optional[int] = None,
        max_chunks: Optional[int] = None,
        mode: Optional[str] = None,
        fallback: Optional[str] = None,
        long_chunk: Optional[str] = None,
        max_context_tokens: Optional[int] = None,
        return_context: Optional[bool] = None,
        return_text: Optional[bool] = None,
        explain: Optional[bool] = None,
        policy: Optional[str] = None,
        budget_ms: Optional[int] = None,
    ) -> ChunkDecision:
        """As `Client.gate_chunks`."""
        settings = {k: v for k, v in locals().items() if k not in ("self", "query", "chunks")}
        return await self._do(_chunks_call(query, chunks, settings))

    async def embed(
        self,
        texts: Sequence[str],
        *,
        input_type: Optional[str] = None,
        model: Optional[str] = None,
        dimensions: Optional[int] = None,
    ) -> Embeddings:
        """As `Client.embed`."""
        return await self._do(_embed_call(texts, input_type, model, dimensions))

    async def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: Optional[int] = None,
        model: Optional[str] = None,
        raw_scores: Optional[bool] = None,
        max_tokens_per_doc: Optional[int] = None,
    ) -> Ranking:
        """As `Client.rerank`."""
        return await self._do(_rerank_call(query, documents, top_n, model, raw_scores, max_tokens_per_doc))

    async def aclose(self) -> None:
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, t: Optional[Type[BaseException]], e: Optional[BaseException], tb: Optional[TracebackType]) -> None:
        await self.aclose()

    async def _do(self, call: _Call[T]) -> T:
        try:
            response = await self._http.post(**self._request(call))
        except httpx.HTTPError as e:
            raise _wrap(call, self.base_url, e) from e
        return _read(call, response)


def batches(texts: Sequence[str], size: int) -> List[Sequence[str]]:
    """texts in parts of at most size."""
    return [texts[i : i + size] for i in range(0, len(texts), size)]
