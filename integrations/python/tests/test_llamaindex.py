"""The LlamaIndex adapter in llama-index-core's own query engine, against a running server."""

from __future__ import annotations

import asyncio

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers.no_text import NoText
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from ragate_client import AsyncClient, Client, RagateError
from ragate_client.llamaindex import RagatePostprocessor

CAPITAL = "What is the capital of France?"


def nodes():
    return [
        NodeWithScore(node=TextNode(text="Cows eat grass.", id_="cows"), score=0.2),
        NodeWithScore(node=TextNode(text="Paris is the capital and largest city of France.", id_="paris", metadata={"page": 2}), score=0.1),
        NodeWithScore(node=TextNode(text="Bananas are rich in potassium.", id_="bananas"), score=None),
    ]


class Fixed(BaseRetriever):
    """Retrieves the same nodes for every query; what is under test comes after it."""

    def _retrieve(self, query_bundle: QueryBundle):
        return nodes()


@pytest.fixture
def client(ragate):
    with Client(ragate.url, gate_timeout=60) as c:
        yield c


def test_in_a_query_engine(client, spoke_to):
    gate = RagatePostprocessor(client=client, min_chunks=1)
    engine = RetrieverQueryEngine(Fixed(), response_synthesizer=NoText(llm=MockLLM()), node_postprocessors=[gate])
    (best,) = engine.query(CAPITAL).source_nodes
    assert best.node.node_id == "paris" and best.score > 0.9
    (best,) = asyncio.run(engine.aquery(CAPITAL)).source_nodes
    assert best.node.node_id == "paris"
    spoke_to("llama-index-core")


def test_scores_and_reasons(client, spoke_to):
    decisions, given = [], nodes()
    gate = RagatePostprocessor(client=client, threshold=0.9, min_chunks=2, on_decision=decisions.append)
    assert isinstance(gate, BaseNodePostprocessor)
    out = gate.postprocess_nodes(given, query_str=CAPITAL)
    assert out[0].node is given[1].node and out[0].node.metadata == {"page": 2} and len(out) == 2
    assert [n.score for n in out] == [c.relevance for c in decisions[0].chunks] and out[0].score > out[1].score
    assert [c.id for c in decisions[0].chunks][0] == "paris" and len(decisions[0].dropped) == 1
    assert given[1].score == 0.1
    spoke_to("llama-index-core")


def test_async_client(ragate, client, spoke_to):
    async def go():
        async with AsyncClient(ragate.url, gate_timeout=60) as a:
            gate = RagatePostprocessor(client=client, async_client=a, min_chunks=1)
            return await gate.apostprocess_nodes(nodes(), query_str=CAPITAL), await gate.apostprocess_nodes([], query_str=CAPITAL)

    (best,), nothing = asyncio.run(go())
    assert best.node.node_id == "paris" and nothing == []
    spoke_to("llama-index-core")


def test_without_a_query(client):
    with pytest.raises(ValueError, match="query"):
        RagatePostprocessor(client=client).postprocess_nodes(nodes())


def test_no_nodes(client):
    assert RagatePostprocessor(client=client).postprocess_nodes([], query_str=CAPITAL) == []


def test_a_gate_that_is_gone_keeps_all(closed_url, caplog):
    async def go(url, on_error):
        async with AsyncClient(url) as a:
            return await RagatePostprocessor(client=client, async_client=a, on_error=on_error).apostprocess_nodes(nodes(), query_str=CAPITAL)

    with Client(closed_url) as client:
        gate, given = RagatePostprocessor(client=client), nodes()
        for _ in range(3):
            assert gate.postprocess_nodes(given, query_str=CAPITAL) == given
        assert len([r for r in caplog.records if r.name == "ragate_client.llamaindex"]) == 1
        assert [n.node.node_id for n in asyncio.run(go(closed_url, "keep"))] == ["cows", "paris", "bananas"]
        with pytest.raises(RagateError):
            RagatePostprocessor(client=client, on_error="raise").postprocess_nodes(given, query_str=CAPITAL)
        with pytest.raises(RagateError):
            asyncio.run(go(closed_url, "raise"))


def test_settings_can_be_written_down(client):
    """LlamaIndex writes components as dicts; clients and callbacks stay out of that."""
    d = RagatePostprocessor(client=client, threshold=0.5).to_dict()
    assert d["threshold"] == 0.5 and d["class_name"] == "RagatePostprocessor" and "client" not in d


def test_bad_settings(client):
    with pytest.raises(ValueError, match="on_error"):
        RagatePostprocessor(client=client, on_error="shrug")
