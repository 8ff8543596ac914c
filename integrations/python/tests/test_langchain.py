"""The LangChain adapters with langchain-core's own vector store and runnables, against a running server."""

from __future__ import annotations

import asyncio
import datetime
import logging

import pytest
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore

from ragate_client import AsyncClient, Client, RagateError, StatusError
from ragate_client.langchain import RagateCompressor, RagateEmbeddings

CAPITAL = "What is the capital of France?"
DOCUMENTS = [
    Document("Cows eat grass.", id="cows", metadata={"page": 1}),
    Document("Paris is the capital and largest city of France.", id="paris", metadata={"page": 2, "when": datetime.date(2024, 1, 2), "o": object()}),
    Document("Bananas are rich in potassium.", id="bananas", metadata={"relevance_score": 17}),
]


@pytest.fixture
def client(ragate):
    with Client(ragate.url, gate_timeout=60) as c:
        yield c


def test_a_store_with_our_embeddings_and_the_gate_behind_it(client, spoke_to):
    store = InMemoryVectorStore(RagateEmbeddings(client))
    store.add_documents([d.model_copy(update={"metadata": {}}) for d in DOCUMENTS])
    gate = RagateCompressor(client=client, min_chunks=1)
    chain = {"documents": store.as_retriever(search_kwargs={"k": 3}), "query": RunnableLambda(lambda q: q)} | RunnableLambda(
        lambda x: gate.compress_documents(x["documents"], x["query"])
    )
    (best,) = chain.invoke(CAPITAL)
    assert best.page_content == DOCUMENTS[1].page_content and best.metadata["relevance_score"] > 0.9
    spoke_to("langchain-core")


def test_the_types_are_langchains(client):
    assert isinstance(RagateCompressor(client=client), BaseDocumentCompressor)
    assert isinstance(RagateEmbeddings(client), Embeddings)


def test_documents_come_back_whole_and_as_copies(client, spoke_to):
    decisions = []
    gate = RagateCompressor(client=client, threshold=0.9, min_chunks=3, on_decision=decisions.append)
    out = gate.compress_documents(DOCUMENTS, CAPITAL)
    assert [d.metadata["ragate_decision"] for d in out] == ["kept", "fallback", "fallback"]
    assert out[0].id == "paris" and out[0].metadata["when"] == datetime.date(2024, 1, 2) and out[0].metadata["o"] is DOCUMENTS[1].metadata["o"]
    assert all(0 <= d.metadata["relevance_score"] <= 1 and d.metadata["ragate_reason"] for d in out)
    assert "ragate_decision" not in DOCUMENTS[1].metadata and DOCUMENTS[2].metadata == {"relevance_score": 17}
    assert decisions[0].stats.fallback_triggered and decisions[0].stats.retrieved == 3
    spoke_to("langchain-core")


def test_dropped_ones_are_told(client):
    decisions = []
    RagateCompressor(client=client, min_chunks=1, on_decision=decisions.append).compress_documents(DOCUMENTS, CAPITAL)
    assert sorted(c.index for c in decisions[0].dropped) == [0, 2] and all(c.reason for c in decisions[0].dropped)


def test_similarity_orders_what_a_spent_budget_leaves_unscored(client):
    documents = [Document("word " * 300 + str(i), metadata={"score": i / 400}) for i in range(400)]
    decisions = []
    gate = RagateCompressor(client=client, budget_ms=1, similarity_key="score", on_decision=decisions.append, on_error="raise")
    out = gate.compress_documents(documents, CAPITAL)
    assert decisions[0].stats.unscored > 0
    unscored = [d for d in out if "relevance_score" not in d.metadata]
    assert [d.metadata["score"] for d in unscored] == sorted((d.metadata["score"] for d in unscored), reverse=True)
    if decisions[0].stats.unscored == 400:
        assert [d.metadata["score"] for d in out] == [399 / 400, 398 / 400]


def test_no_documents(client):
    assert RagateCompressor(client=client).compress_documents([], CAPITAL) == []


@pytest.mark.parametrize("own", [True, False], ids=("async client", "thread"))
def test_async(ragate, client, own, spoke_to):
    async def go():
        async with AsyncClient(ragate.url, gate_timeout=60) as a:
            other = a if own else None
            gate = RagateCompressor(client=client, async_client=other, min_chunks=1)
            embeddings = RagateEmbeddings(client, async_client=other, batch_size=2)
            return (
                await gate.acompress_documents(DOCUMENTS, CAPITAL),
                await embeddings.aembed_documents(["a", "b", "c"]),
                await embeddings.aembed_query("a"),
                await gate.acompress_documents([], CAPITAL),
            )

    (best,), vectors, vector, nothing = asyncio.run(go())
    assert best.id == "paris" and nothing == []
    plain = RagateEmbeddings(client)
    assert vectors == [pytest.approx(v, abs=0.01) for v in plain.embed_documents(["a", "b", "c"])]
    assert vector == pytest.approx(plain.embed_query("a"), abs=0.01)
    spoke_to("langchain-core")


def test_embeddings_use_the_prefixes_and_batches(client, spoke_to):
    text = "the notice period is one month"
    e = RagateEmbeddings(client, batch_size=3)
    assert e.embed_query(text) == pytest.approx(client.embed([text], input_type="query").vectors[0], abs=1e-6)
    texts = [f"{text} {i}" for i in range(8)]
    many = e.embed_documents(texts)
    assert len(many) == 8
    for v, t in zip(many, texts):
        # Alone and in a batch a model computes in another order, hence the tolerance; another text is much further off.
        assert v == pytest.approx(client.embed([t], input_type="document").vectors[0], abs=0.01)
    assert e.embed_documents([]) == []
    assert len(RagateEmbeddings(client, dimensions=32).embed_query("a")) == 32
    with pytest.raises(ValueError, match="batch_size"):
        RagateEmbeddings(client, batch_size=0)
    spoke_to("langchain-core")


def test_a_gate_that_is_gone_keeps_all(closed_url, caplog):
    with Client(closed_url) as client:
        gate = RagateCompressor(client=client)
        for _ in range(3):
            assert gate.compress_documents(DOCUMENTS, CAPITAL) == DOCUMENTS
        assert len([r for r in caplog.records if r.name == "ragate_client.langchain"]) == 1
        with pytest.raises(RagateError):
            RagateCompressor(client=client, on_error="raise").compress_documents(DOCUMENTS, CAPITAL)
        with pytest.raises(RagateError):
            RagateEmbeddings(client).embed_query("a")


def test_a_refusal_is_an_error_in_the_log(client, caplog):
    gate = RagateCompressor(client=client, policy="nonesuch")
    assert gate.compress_documents(DOCUMENTS, CAPITAL) == DOCUMENTS
    (record,) = [r for r in caplog.records if r.name == "ragate_client.langchain"]
    assert record.levelno == logging.ERROR and "nonesuch" in record.getMessage()
    with pytest.raises(StatusError):
        RagateCompressor(client=client, policy="nonesuch", on_error="raise").compress_documents(DOCUMENTS, CAPITAL)


def test_bad_settings(client):
    with pytest.raises(ValueError, match="on_error"):
        RagateCompressor(client=client, on_error="shrug")
    with pytest.raises(ValueError, match="treshold"):
        RagateCompressor(client=client, treshold=0.5)
