"""LiteLLM: embedding and rerank through each provider that speaks one of the server's dialects, sync and async."""

import asyncio

import litellm
import pytest
from conftest import STRICT_BYTES, STRICT_DOCUMENTS, STRICT_ITEMS
from servers import EMBEDDER, RERANKER, assert_retried
from values import DOCUMENTS, QUERY, SAME_LOGIT, TEXTS, assert_ranking, assert_vectors, logit

pytestmark = pytest.mark.package("litellm")
litellm.suppress_debug_info = True

# Provider: what stands behind the server's address, the prefix that the provider's default adds, further arguments.
EMBEDDERS = {
    "openai": ("/v1", "", {}),
    "hosted_vllm": ("/v1", "", {}),
    "jina_ai": ("/v1", "", {}),
    "infinity": ("/v1", "", {}),
    "cohere": ("/v2/embed", "passage: ", {}),  # its default is search_document
    # Without input_type it asks the hub of Hugging Face what the model is for.
    "huggingface": ("/embed", "", {"input_type": "embed"}),
}
# infinity reads `document` as Infinity writes it, a text; Cohere, Jina and vLLM write an object.
RERANKERS = {
    "cohere": ("", "/v2/rerank", {}),
    "jina_ai": ("/v1", "/v1/rerank", {}),
    "huggingface": ("", "/rerank", {}),
    "hosted_vllm": ("", "/rerank", {}),
    "infinity": ("", "/rerank", {"return_documents": False}),
}


def embed(server, provider, texts, call=litellm.embedding, **change):
    path, _, options = EMBEDDERS[provider]
    request = {"model": f"{provider}/{EMBEDDER}", "input": texts, "api_base": server.url + path, "api_key": server.client_key, "max_retries": 0}
    return call(**{**request, **options, **change})


def rerank(server, provider, call=litellm.rerank, **change):
    path, _, options = RERANKERS[provider]
    request = {"model": f"{provider}/{RERANKER}", "query": QUERY, "documents": DOCUMENTS, "api_base": server.url + path, "api_key": server.client_key}
    return call(**{**request, **options, **change})


def vectors(answer):
    assert [d["index"] for d in answer.data] == list(range(len(answer.data)))
    return [d["embedding"] for d in answer.data]


def ranking(answer):
    return [(r["index"], r["relevance_score"]) for r in answer.results]


@pytest.mark.parametrize("provider", EMBEDDERS)
def test_embedding(server, calls, provider):
    assert_vectors(server, vectors(embed(server, provider, TEXTS)), prefix=EMBEDDERS[provider][1])
    answer = asyncio.run(embed(server, provider, TEXTS, litellm.aembedding))
    assert_vectors(server, vectors(answer), prefix=EMBEDDERS[provider][1])
    route = {"cohere": "/v2/embed", "huggingface": "/embed"}.get(provider, "/v1/embeddings")
    assert [c.route for c in calls()] == [route] * 2


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "jina_ai", "cohere"])
def test_dimensions(server, provider):
    allowed = {"allowed_openai_params": ["dimensions"]} if provider == "openai" else {}  # it knows only OpenAI's own models to have them
    answer = embed(server, provider, TEXTS, dimensions=64, **allowed)
    assert_vectors(server, vectors(answer), prefix=EMBEDDERS[provider][1], dimensions=64)


def test_prefixes(server):
    assert_vectors(server, vectors(embed(server, "cohere", TEXTS, input_type="search_query")), prefix="query: ")
    assert_vectors(server, vectors(embed(server, "jina_ai", TEXTS, task="retrieval.query")), prefix="query: ")
    assert_vectors(server, vectors(embed(server, "openai", TEXTS, extra_body={"input_type": "query"})), prefix="query: ")


def test_openai_base64(server):
    import base64

    import numpy as np

    got = vectors(embed(server, "openai", TEXTS, encoding_format="base64"))
    assert_vectors(server, [np.frombuffer(base64.b64decode(v), "<f4") for v in got])


@pytest.mark.parametrize("provider", [p for p in RERANKERS if p != "huggingface"])
def test_rerank(server, calls, provider):
    answer = rerank(server, provider)
    assert_ranking(server, ranking(answer))
    if provider != "infinity":
        assert [r["document"]["text"] for r in answer.results] == [DOCUMENTS[r["index"]] for r in answer.results]
    assert_ranking(server, ranking(asyncio.run(rerank(server, provider, litellm.arerank))))
    assert {c.route for c in calls()} == {RERANKERS[provider][1]}


def test_rerank_huggingface(server, calls):
    """This provider always asks not to cut, so its documents must fit."""
    fitting = [i for i, d in enumerate(DOCUMENTS) if len(d) < 500]
    answer = rerank(server, "huggingface", documents=[DOCUMENTS[i] for i in fitting])
    got = {fitting[i]: score for i, score in ranking(answer)}
    plain = server.post("/rerank", {"query": QUERY, "texts": DOCUMENTS})
    assert list(got) == [r["index"] for r in plain if r["index"] in fitting]
    assert all(abs(logit(got[r["index"]]) - logit(r["score"])) < SAME_LOGIT for r in plain if r["index"] in fitting)
    with pytest.raises(litellm.APIError, match="cutting is refused"):
        rerank(server, "huggingface")
    assert {c.route for c in calls()} == {"/rerank"}


@pytest.mark.parametrize("provider", ["cohere", "jina_ai", "hosted_vllm", "infinity"])
def test_rerank_top_n(server, provider):
    assert_ranking(server, ranking(rerank(server, provider, top_n=2)), top=2)


def test_many(server, calls):
    texts = [f"{i}: {TEXTS[i % 5]}" for i in range(110)]
    assert_vectors(server, vectors(embed(server, "openai", texts)), texts)
    answer = rerank(server, "cohere", documents=[f"{i}: {DOCUMENTS[i % 3]}" for i in range(110)])
    assert sorted(r["index"] for r in answer.results) == list(range(110)) and answer.results[0]["index"] % 3 == 1


TOO_LARGE = (litellm.APIError, litellm.BadRequestError)  # of a 413 it makes one or the other, by provider and message
EMBED_REFUSED = {
    "wrong key": (litellm.AuthenticationError, 401, "RAGATE_API_KEY", {"api_key": "a-wrong-one"}),
    "unknown model": (litellm.NotFoundError, 404, "is not loaded", {"model": "{}/text-embedding-3-small"}),
    "empty list": (litellm.BadRequestError, 400, "empty list", {"texts": []}),
    "too long": (TOO_LARGE, 413, "limit is 512 tokens", {"texts": ["word " * 600]}),
    "too many": (TOO_LARGE, 413, f"{STRICT_ITEMS + 1} items", {"texts": ["a"] * (STRICT_ITEMS + 1)}),
}


@pytest.mark.parametrize("provider", ["openai", "hosted_vllm", "jina_ai", "cohere"])
@pytest.mark.parametrize("case", EMBED_REFUSED)
def test_embedding_errors(strict, calls, provider, case):
    if (provider, case) == ("cohere", "empty list"):
        with pytest.raises(litellm.APIConnectionError, match="list index out of range"):  # its own fault; nothing is sent
            embed(strict, provider, [])
        assert not calls()
        return
    error, status, message, change = EMBED_REFUSED[case]
    change = {k: v.format(provider) if k == "model" else v for k, v in change.items()}
    with pytest.raises(error, match=message) as raised:
        embed(strict, provider, **{"texts": ["a"], **change})
    assert raised.value.status_code == status
    assert [c.status for c in calls()] == [status], "it must not be tried again"


RERANK_REFUSED = {
    "wrong key": (litellm.AuthenticationError, 401, "RAGATE_API_KEY", {"api_key": "a-wrong-one"}),
    "unknown model": (litellm.NotFoundError, 404, "is not loaded", {"model": "{}/rerank-v3.5"}),
    "empty list": (litellm.BadRequestError, 400, "empty list", {"documents": []}),
    "too long": (TOO_LARGE, 413, "limit is 512 tokens", {"documents": ["word " * 600]}),
    "too many": (TOO_LARGE, 413, f"{STRICT_DOCUMENTS + 1} items", {"documents": ["a"] * (STRICT_DOCUMENTS + 1)}),
    "too large": (TOO_LARGE, 413, "RAGATE_MAX_BODY_BYTES", {"documents": ["a" * STRICT_BYTES]}),
}


@pytest.mark.parametrize("provider", RERANKERS)
@pytest.mark.parametrize("case", RERANK_REFUSED)
def test_rerank_errors(strict, calls, provider, case):
    error, status, message, change = RERANK_REFUSED[case]
    if provider == "huggingface":  # TEI's route: no model is named, and a wrong field is a 422
        if case == "unknown model":
            assert rerank(strict, provider, model="huggingface/rerank-v3.5", documents=["a"]).results
            return
        if status == 400:
            error, status = litellm.APIError, 422
    change = {k: v.format(provider) if k == "model" else v for k, v in change.items()}
    with pytest.raises(error, match=message) as raised:
        rerank(strict, provider, **change)
    assert raised.value.status_code == status
    assert [c.status for c in calls()] == [status], "it must not be tried again"


@pytest.mark.parametrize("provider", ["jina_ai", "cohere"])
def test_a_full_queue(strict, provider):
    embed(strict, provider, ["a"])  # what it loads at its first call
    with strict.flooded(), pytest.raises(litellm.RateLimitError, match="queue is full"):
        embed(strict, provider, ["a " * 300])


def test_retries_wait_as_told(strict, calls):
    embed(strict, "openai", ["a"])
    calls()
    calls.seen.clear()
    with strict.flooded():
        embed(strict, "openai", ["a " * 300], max_retries=5)
    assert_retried(calls())
