"""LlamaIndex adapter: the chunk gate as a node postprocessor.

    gate = RagatePostprocessor(client=Client("http://127.0.0.1:8080"))
    engine = index.as_query_engine(similarity_top_k=10, node_postprocessors=[gate])

It fails open: when the gate gives no decision the nodes come back as they came, and the log says so once.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, List, Optional

from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from .client import AsyncClient, Client, as_json_metadata
from .errors import RagateError
from .failopen import OutageLog
from .settings import check_on_error, gate_settings, similarity_of
from .types import Chunk, ChunkDecision

logger = logging.getLogger("ragate_client.llamaindex")


class RagatePostprocessor(BaseNodePostprocessor):
    """Keeps the nodes that the chunk gate keeps, best first. A node's score becomes its relevance, None where it was not scored.

    Nodes are judged by their text without metadata, and the metadata is left as it is, since LlamaIndex puts it into the prompt: the reasons
    come with on_decision. on_error: `keep` (default) returns all nodes when the gate gives no decision, `raise` raises the `RagateError`.
    The other settings are the route's; None leaves them to the server's policy.
    """

    client: Client = Field(exclude=True)
    async_client: Optional[AsyncClient] = Field(default=None, exclude=True)
    threshold: Optional[float] = None
    min_chunks: Optional[int] = None
    max_chunks: Optional[int] = None
    mode: Optional[str] = None
    fallback: Optional[str] = None
    long_chunk: Optional[str] = None
    max_context_tokens: Optional[int] = None
    budget_ms: Optional[int] = None
    policy: Optional[str] = None
    on_error: str = "keep"
    on_decision: Optional[Callable[[ChunkDecision], None]] = Field(default=None, exclude=True)

    _outage: OutageLog = PrivateAttr(default_factory=lambda: OutageLog(logger, "All nodes are kept"))

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        check_on_error(self.on_error)

    @classmethod
    def class_name(cls) -> str:
        return "RagatePostprocessor"

    def _postprocess_nodes(self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None) -> List[NodeWithScore]:
        query = _query(query_bundle)
        if not nodes:
            return []
        try:
            decision = self.client.gate_chunks(query, _chunks(nodes), **gate_settings(self))
        except RagateError as e:
            return self._failed(e, nodes)
        return self._kept(nodes, decision)

    async def _apostprocess_nodes(
        self, nodes: List[NodeWithScore], query_bundle: Optional[QueryBundle] = None
    ) -> List[NodeWithScore]:
        if self.async_client is None:
            return await super()._apostprocess_nodes(nodes, query_bundle)
        query = _query(query_bundle)
        if not nodes:
            return []
        try:
            decision = await self.async_client.gate_chunks(query, _chunks(nodes), **gate_settings(self))
        except RagateError as e:
            return self._failed(e, nodes)
        return self._kept(nodes, decision)

    def _failed(self, e: RagateError, nodes: List[NodeWithScore]) -> List[NodeWithScore]:
        if self.on_error == "raise":
            raise e
        self._outage.failed(e)
        return list(nodes)

    def _kept(self, nodes: List[NodeWithScore], decision: ChunkDecision) -> List[NodeWithScore]:
        self._outage.answered()
        if self.on_decision is not None:
            self.on_decision(decision)
        return [NodeWithScore(node=nodes[c.index].node, score=c.relevance) for c in decision.chunks]


def _query(bundle: Optional[QueryBundle]) -> str:
    if bundle is None:
        raise ValueError("the chunk gate judges nodes by a query: give query_bundle or query_str")
    return bundle.query_str


def _chunks(nodes: List[NodeWithScore]) -> List[Chunk]:
    return [
        Chunk(
            n.node.get_content(metadata_mode=MetadataMode.NONE),
            id=n.node.node_id,
            similarity=similarity_of(n.score),
            metadata=as_json_metadata(n.node.metadata),
        )
        for n in nodes
    ]
