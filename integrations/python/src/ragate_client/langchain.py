"""LangChain adapters: the chunk gate as a document compressor, and the server's embedder as embeddings.

    client = Client("http://127.0.0.1:8080")
    store = InMemoryVectorStore(RagateEmbeddings(client))
    gate = RagateCompressor(client=client)
    documents = gate.compress_documents(store.similarity_search(question, k=10), question)

The compressor fails open: when the gate gives no decision the documents come back as they came, and the log says so once.
Embeddings have no safe side and raise. Async methods use `async_client` where one is given, and a thread otherwise.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Dict, List, Optional, Sequence

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from pydantic import ConfigDict, PrivateAttr

from .client import AsyncClient, Client, as_json_metadata, batches
from .errors import RagateError
from .failopen import OutageLog
from .settings import check_on_error, gate_settings, similarity_of
from .types import Chunk, ChunkDecision

logger = logging.getLogger("ragate_client.langchain")

DEFAULT_BATCH_SIZE = 256
"""Texts per embedding request, well under the server's limit of 2,048, so that other callers get their turn in between."""


class RagateCompressor(BaseDocumentCompressor):
    """Keeps the documents that the chunk gate keeps, best first.

    Each returned document is a copy with `relevance_score` (absent where it was not scored), `ragate_decision` and `ragate_reason` in its
    metadata. similarity_key: the metadata member that holds the retriever's own score, which is the order of scoring under a budget.
    on_error: `keep` (default) returns all documents when the gate gives no decision, `raise` raises the `RagateError`.
    on_decision: called with each whole decision: what was dropped and why, insufficient_context, the numbers.
    The other settings are the route's; None leaves them to the server's policy.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    client: Client
    async_client: Optional[AsyncClient] = None
    threshold: Optional[float] = None
    min_chunks: Optional[int] = None
    max_chunks: Optional[int] = None
    mode: Optional[str] = None
    fallback: Optional[str] = None
    long_chunk: Optional[str] = None
    max_context_tokens: Optional[int] = None
    budget_ms: Optional[int] = None
    policy: Optional[str] = None
    similarity_key: Optional[str] = None
    on_error: str = "keep"
    on_decision: Optional[Callable[[ChunkDecision], None]] = None

    _outage: OutageLog = PrivateAttr(default_factory=lambda: OutageLog(logger, "All documents are kept"))

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        check_on_error(self.on_error)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Optional[Callbacks] = None
    ) -> Sequence[Document]:
        if not documents:
            return []
        try:
            decision = self.client.gate_chunks(query, self._chunks(documents), **gate_settings(self))
        except RagateError as e:
            return self._failed(e, documents)
        return self._kept(documents, decision)

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Optional[Callbacks] = None
    ) -> Sequence[Document]:
        if self.async_client is None:
            return await super().acompress_documents(documents, query, callbacks)
        if not documents:
            return []
        try:
            decision = await self.async_client.gate_chunks(query, self._chunks(documents), **gate_settings(self))
        except RagateError as e:
            return self._failed(e, documents)
        return self._kept(documents, decision)

    def _chunks(self, documents: Sequence[Document]) -> List[Chunk]:
        chunks = []
        for d in documents:
            score = d.metadata.get(self.similarity_key) if self.similarity_key else None
            chunks.append(Chunk(d.page_content, similarity=similarity_of(score), metadata=as_json_metadata(d.metadata)))
        return chunks

    def _failed(self, e: RagateError, documents: Sequence[Document]) -> Sequence[Document]:
        if self.on_error == "raise":
            raise e
        self._outage.failed(e)
        return list(documents)

    def _kept(self, documents: Sequence[Document], decision: ChunkDecision) -> List[Document]:
        self._outage.answered()
        if self.on_decision is not None:
            self.on_decision(decision)
        out = []
        for c in decision.chunks:
            d = documents[c.index]
            metadata = {**d.metadata, "ragate_decision": c.decision, "ragate_reason": c.reason}
            metadata.pop("relevance_score", None)  # an earlier reranker's is another scale
            if c.relevance is not None:
                metadata["relevance_score"] = c.relevance
            out.append(d.model_copy(update={"metadata": metadata}))
        return out


class RagateEmbeddings(Embeddings):
    """The server's embedder. Documents and queries get the prefix that the model was trained with. Vectors have length 1."""

    def __init__(
        self,
        client: Client,
        *,
        async_client: Optional[AsyncClient] = None,
        model: Optional[str] = None,
        dimensions: Optional[int] = None,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ):
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: 1 or more")
        self._client = client
        self._async_client = async_client
        self._settings: Dict[str, Any] = {"model": model, "dimensions": dimensions}
        self._batch_size = batch_size

    def embed_documents(self, texts: List[str]) -> List[List[float]]:
        out: List[List[float]] = []
        for part in batches(texts, self._batch_size):
            out += self._client.embed(part, input_type="document", **self._settings).vectors
        return out

    def embed_query(self, text: str) -> List[float]:
        return self._client.embed([text], input_type="query", **self._settings).vectors[0]

    async def aembed_documents(self, texts: List[str]) -> List[List[float]]:
        if self._async_client is None:
            return await super().aembed_documents(texts)
        out: List[List[float]] = []
        for part in batches(texts, self._batch_size):
            out += (await self._async_client.embed(part, input_type="document", **self._settings)).vectors
        return out

    async def aembed_query(self, text: str) -> List[float]:
        if self._async_client is None:
            return await super().aembed_query(text)
        return (await self._async_client.embed([text], input_type="query", **self._settings)).vectors[0]
