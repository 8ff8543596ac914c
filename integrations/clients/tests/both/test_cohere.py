"""The cohere package: Client (version 1 of the API) and ClientV2, sync and async. Runs with the current major and with cohere 5."""

import asyncio
import base64

import cohere
import numpy as np
import pytest
from cohere.core.api_error import ApiError
from conftest import STRICT_BYTES, STRICT_DOCUMENTS
from servers import EMBEDDER, RERANKER, assert_retried
from values import DOCUMENTS, LONG, PAIR_TOKENS, QUERY, TEXTS, TOKENS, assert_ranking, assert_vectors

pytestmark = pytest.mark.package("cohere")
BOTH = pytest.mark.parametrize("cls", [cohere.Client, cohere.ClientV2], ids=["v1", "v2"])
ASYNC = {cohere.Client: cohere.AsyncClient, cohere.ClientV2: cohere.AsyncClientV2}
INPUT_TYPES = {"search_query": "query: ", "search_document": "passage: ", "classification": "", "clustering": ""}


def client(server, cls, **options):
    return cls(api_key=server.client_key, base_url=server.url, **options)


def ranking(answer):
    return [(r.index, r.relevance_score) for r in answer.results]


@BOTH
def test_rerank(server, calls, cls):
    answer = client(server, cls).rerank(model=RERANKER, query=QUERY, documents=DOCUMENTS)
    assert_ranking(server, ranking(answer))
    version = "1" if cls is cohere.Client else "2"
    assert answer.id and answer.meta.api_version.version == version and answer.meta.billed_units.search_units == 1
    assert answer.usage["total_tokens"] == sum(PAIR_TOKENS)
    assert [c.route for c in calls()] == [f"/v{version}/rerank"]


@BOTH
def test_rerank_async(server, cls):
    async def go():
        return await client(server, ASYNC[cls]).rerank(model=RERANKER, query=QUERY, documents=DOCUMENTS, top_n=3)

    assert_ranking(server, ranking(asyncio.run(go())), top=3)


def test_rerank_objects_and_their_texts(server):
    documents = [DOCUMENTS[0]] + [{"text": d, "title": "ignored"} for d in DOCUMENTS[1:]]
    answer = client(server, cohere.Client).rerank(
        model=RERANKER, query=QUERY, documents=documents, return_documents=True, rank_fields=["text"], max_chunks_per_doc=3
    )
    assert_ranking(server, ranking(answer))
    assert [r.document.text for r in answer.results] == [DOCUMENTS[r.index] for r in answer.results]


def test_rerank_cuts_documents(server):
    whole = client(server, cohere.ClientV2).rerank(model=RERANKER, query=QUERY, documents=DOCUMENTS)
    cut = client(server, cohere.ClientV2).rerank(model=RERANKER, query=QUERY, documents=DOCUMENTS, max_tokens_per_doc=5, priority=3)
    assert cut.usage["total_tokens"] < whole.usage["total_tokens"] and cut.truncated


@BOTH
def test_rerank_many(server, cls):
    documents = [f"{i}: {DOCUMENTS[i % 3]}" for i in range(130)]
    answer = client(server, cls).rerank(model="ms-marco-MiniLM-L-12-v2", query=QUERY, documents=documents)
    assert sorted(r.index for r in answer.results) == list(range(130))
    assert answer.results[0].index % 3 == 1 and answer.meta.billed_units.search_units == 2


@BOTH
@pytest.mark.parametrize("input_type", INPUT_TYPES)
def test_embed(server, cls, input_type):
    answer = client(server, cls).embed(model=EMBEDDER, texts=TEXTS, input_type=input_type, embedding_types=["float"])
    assert_vectors(server, answer.embeddings.float, prefix=INPUT_TYPES[input_type])
    assert answer.texts == TEXTS and answer.meta.billed_units.input_tokens == sum(TOKENS[INPUT_TYPES[input_type]])


def test_embed_without_types(server):
    answer = client(server, cohere.Client).embed(model=EMBEDDER, texts=TEXTS, input_type="search_query")
    assert answer.response_type == "embeddings_floats"
    assert_vectors(server, answer.embeddings, prefix="query: ")
    answer = client(server, cohere.ClientV2).embed(model=EMBEDDER, texts=TEXTS, input_type="search_query")
    assert_vectors(server, answer.embeddings.float, prefix="query: ")


@BOTH
def test_embed_async(server, cls):
    async def go():
        return await client(server, ASYNC[cls]).embed(model=EMBEDDER, texts=TEXTS, input_type="search_query", embedding_types=["float"])

    assert_vectors(server, asyncio.run(go()).embeddings.float, prefix="query: ")


@BOTH
def test_embed_base64(server, cls):
    answer = client(server, cls).embed(model=EMBEDDER, texts=TEXTS[:3], input_type="classification", embedding_types=["float", "base64"])
    packed = [np.frombuffer(base64.b64decode(b), "<f4") for b in answer.embeddings.base64]
    assert_vectors(server, packed, TEXTS[:3])
    assert np.abs(np.stack(packed) - answer.embeddings.float).max() < 1e-6


def test_embed_inputs(server):
    inputs = [{"content": [{"type": "text", "text": t}]} for t in TEXTS]
    answer = client(server, cohere.ClientV2).embed(model=EMBEDDER, inputs=inputs, input_type="search_query", embedding_types=["float"])
    assert_vectors(server, answer.embeddings.float, prefix="query: ")
    image = {"content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}
    with pytest.raises(cohere.BadRequestError, match="text only"):
        client(server, cohere.ClientV2).embed(model=EMBEDDER, inputs=[image], input_type="search_query", embedding_types=["float"])


def test_embed_dimensions(server):
    answer = client(server, cohere.ClientV2).embed(
        model=EMBEDDER, texts=TEXTS, input_type="clustering", embedding_types=["float"], output_dimension=64
    )
    assert_vectors(server, answer.embeddings.float, dimensions=64)


@BOTH
def test_embed_truncate(server, cls):
    def embed(how):
        return client(server, cls).embed(
            model=EMBEDDER, texts=[TEXTS[LONG]], input_type="clustering", embedding_types=["float"], truncate=how
        ).embeddings.float

    assert_vectors(server, embed("END"), [TEXTS[LONG]])
    left = server.post("/embed", {"inputs": TEXTS[LONG], "truncation_direction": "Left"})
    assert np.dot(embed("START")[0], left[0]) > 0.99999 > np.dot(embed("END")[0], left[0])
    with pytest.raises(ApiError, match="the limit is 512 tokens") as error:
        embed("NONE")
    assert error.value.status_code == 413


@BOTH
def test_embed_in_batches(server, calls, cls):
    """Client splits lists longer than 96 and puts the answers together again; ClientV2 sends them whole."""
    texts = [f"{i}: {TEXTS[i % 5]}" for i in range(100)]
    answer = client(server, cls).embed(model="e5-small-v2", texts=texts, input_type="clustering", embedding_types=["float"])
    assert_vectors(server, answer.embeddings.float, texts)
    assert answer.texts == texts and sorted(c.items for c in calls()) == ([4, 96] if cls is cohere.Client else [100])


def embed(c, **change):
    return c.embed(**{"model": EMBEDDER, "texts": ["a"], "input_type": "search_query", "embedding_types": ["float"], **change})


def rerank(c, **change):
    return c.rerank(**{"model": RERANKER, "query": "a", "documents": ["a"], **change})


REFUSED = {
    "unknown embedder": (embed, cohere.NotFoundError, 404, "is not loaded", {"model": "embed-v4.0"}),
    "unknown reranker": (rerank, cohere.NotFoundError, 404, "is not loaded", {"model": "rerank-v3.5"}),
    "embedder that should rerank": (rerank, cohere.BadRequestError, 400, "is an embedder", {"model": EMBEDDER}),
    "no documents": (rerank, cohere.BadRequestError, 400, "empty list", {"documents": []}),
    "top_n": (rerank, cohere.BadRequestError, 400, "`top_n` is 0", {"top_n": 0}),
    "int8": (embed, cohere.BadRequestError, 400, "embedding_types", {"embedding_types": ["int8"]}),
    "too long": (rerank, ApiError, 413, "the limit is 512 tokens", {"documents": ["a", "word " * 600]}),
    "too many": (rerank, ApiError, 413, f"{STRICT_DOCUMENTS + 1} items", {"documents": ["a"] * (STRICT_DOCUMENTS + 1)}),
    "too large": (rerank, ApiError, 413, "RAGATE_MAX_BODY_BYTES", {"documents": ["a" * STRICT_BYTES]}),
}


@BOTH
@pytest.mark.parametrize("case", REFUSED)
def test_errors(strict, calls, case, cls):
    call, error, status, message, change = REFUSED[case]
    with pytest.raises(error, match=message) as raised:
        call(client(strict, cls), **change)
    assert raised.value.status_code == status and raised.value.body["message"] == raised.value.body["detail"]
    assert [c.status for c in calls()] == [status], "it must not be tried again"


@BOTH
@pytest.mark.parametrize("call", [embed, rerank])
def test_a_wrong_key(strict, call, cls):
    with pytest.raises(cohere.UnauthorizedError, match="RAGATE_API_KEY"):
        call(cls(api_key="a-wrong-one", base_url=strict.url))


@pytest.mark.parametrize("call, change", [(rerank, {"documents": ["a " * 300]}), (embed, {"texts": ["a " * 300]})], ids=["rerank", "embed"])
def test_a_full_queue(strict, calls, call, change):
    c = client(strict, cohere.ClientV2)
    with strict.flooded():
        with pytest.raises(cohere.TooManyRequestsError, match="queue is full"):
            call(c, request_options={"max_retries": 0}, **change)
        calls.seen.clear()
        call(c, request_options={"max_retries": 5}, **change)
    assert_retried([c for c in calls() if c.route in ("/v2/rerank", "/v2/embed")][1:])
