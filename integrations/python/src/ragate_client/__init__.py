"""Client of a ragate server: the query gate, the chunk gate, embeddings and reranking.

Start with `Client` (blocking) or `AsyncClient` (asyncio). Both keep their connections, answer with typed results and raise
`RagateError` for everything that goes wrong between asking and a well-formed answer. Neither retries: a gate that has to be
asked twice costs more time than it saves.

The adapters live in modules of their own, so that this one needs httpx and nothing else:

- `ragate_client.litellm`: a hook for the LiteLLM proxy
- `ragate_client.langchain`: a document compressor and embeddings
- `ragate_client.llamaindex`: a node postprocessor

Not for: deciding anything here. Thresholds and rules are the server's, in its policies.
"""

from .client import AsyncClient, Client, as_json_metadata
from .errors import MalformedAnswerError, RagateError, StatusError, TimedOutError, UnreachableError
from .types import (
    Chunk,
    ChunkDecision,
    ChunkStats,
    Embeddings,
    GatedChunk,
    PolicyRef,
    QueryDecision,
    Ranked,
    Ranking,
    Turn,
)

__all__ = [
    "AsyncClient",
    "Chunk",
    "ChunkDecision",
    "ChunkStats",
    "Client",
    "Embeddings",
    "GatedChunk",
    "MalformedAnswerError",
    "PolicyRef",
    "QueryDecision",
    "RagateError",
    "Ranked",
    "Ranking",
    "StatusError",
    "TimedOutError",
    "Turn",
    "UnreachableError",
    "as_json_metadata",
]
